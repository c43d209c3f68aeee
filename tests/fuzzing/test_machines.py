"""Half a minute of what ``make fuzz`` does for ten: here the state machines and odd arguments."""

import pytest
from fuzzing.inputs import calls, refused
from fuzzing.measures import MeasureMachine
from fuzzing.models import ModelMachine
from fuzzing.profiles import FIXED, run_machine
from fuzzing.searches import SearchMachine
from hypothesis import given


@pytest.mark.parametrize(
    ("machine", "runs"),
    [(MeasureMachine, 20), (ModelMachine, 8), (SearchMachine, 5)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_state_machines(machine: type, runs: int) -> None:
    run_machine(machine, FIXED, max_examples=runs)


@FIXED
@given(calls())
def test_odd_arguments_raise_errors_of_the_package(call: tuple[str, tuple[int, ...]]) -> None:
    wrong = refused(*call)
    assert wrong is None, wrong
