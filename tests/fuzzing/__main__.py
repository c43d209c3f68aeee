"""Look for faults for some minutes: ``make fuzz ARGS="--minutes 10 --seed 1"``.

Rounds of state machines, odd arguments and attacks on files follow each other until the time is over.
Each round has a seed of its own, with which ``--seed`` repeats it. The exit status is one if a round has
found something.
"""

import argparse
import logging
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable

from fuzzing import attacks
from fuzzing.inputs import CALLS, ODD, refused
from fuzzing.measures import MeasureMachine
from fuzzing.models import ModelMachine
from fuzzing.profiles import FIXED, run_machine
from fuzzing.searches import SearchMachine
from hypothesis import Phase, settings

LOGGER = logging.getLogger("fuzzing")
FREE = settings(FIXED, derandomize=False, phases=[Phase.generate, Phase.shrink])


def odd_arguments(seed: int) -> None:
    """Call functions with odd arguments."""
    rng = random.Random(seed)
    names = sorted(CALLS)
    found = []
    for _ in range(500):
        name = rng.choice(names)
        found.append(refused(name, tuple(rng.randrange(len(ODD)) for _ in range(CALLS[name][1]))))
    wrong = [text for text in found if text]
    assert not wrong, "\n".join(wrong[:5])


def files(seed: int) -> None:
    """Attack files."""
    report = attacks.run(seed=1000 * seed, cases=60)
    LOGGER.info("%s, slowest %.1f s (%s)", dict(report.outcomes), *report.slowest)
    assert not report.wrong, "\n".join(report.wrong[:5])


PARTS: dict[str, Callable[[int], None]] = {
    "measures": lambda seed: run_machine(MeasureMachine, FREE, number=seed, max_examples=150),
    "models": lambda seed: run_machine(ModelMachine, FREE, number=seed, max_examples=60),
    "searches": lambda seed: run_machine(SearchMachine, FREE, number=seed, max_examples=30),
    "arguments": odd_arguments,
    "files": files,
}


def main() -> int:
    """Run rounds until the time is over, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="seed of the first round")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated")
    first = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    end = time.monotonic() + 60 * options.minutes
    failures = 0
    number = first
    while time.monotonic() < end:
        for part in options.parts:
            if time.monotonic() > end:
                break
            started = time.monotonic()
            try:
                PARTS[part](number)
            except Exception:
                failures += 1
                LOGGER.error("seed %d, %s:\n%s", number, part, traceback.format_exc())
            else:
                LOGGER.info("seed %d, %s: %.0f s", number, part, time.monotonic() - started)
        number += 1
    LOGGER.info("%d rounds from seed %d, %d failures", number - first, first, failures)
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
