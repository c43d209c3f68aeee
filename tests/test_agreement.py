"""Results agree with those stored, whatever the versions of the libraries and the number of threads."""

import json
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits

from tests.agreement import FILE, distances, fits, models

STORED = json.loads(FILE.read_text())


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    with threadpool_limits(request.param):
        yield request.param
    torch.set_num_threads(before)


def test_distances_and_models(threads: int) -> None:
    """Twelve digits: condition numbers are below 1e4."""
    assert distances() | models() == pytest.approx(STORED["exact"], rel=1e-12, abs=0)


def test_fits(threads: int) -> None:
    """Optimisers stop where the objective is flat to 1e-9, which determines its maximum to the root."""
    assert fits() == pytest.approx(STORED["optimised"], rel=1e-4, abs=0)
