"""Settings of Hypothesis: the same cases in every run of the tests, and new ones for longer runs."""

from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

FIXED = settings(
    max_examples=250,
    stateful_step_count=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def run_machine(
    machine: type[RuleBasedStateMachine],
    profile: settings,
    *,
    number: int | None = None,
    **options: Any,
) -> None:
    """Run a state machine, from a random seed if one is given."""
    seeded = machine if number is None else seed(number)(type(machine.__name__, (machine,), {}))
    run_state_machine_as_test(seeded, settings=settings(profile, **options))
