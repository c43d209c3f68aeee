from collections.abc import Iterator

import pytest
import torch
from botorch.acquisition.multi_objective import logei
from fault_tasks import Children


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(scope="session", autouse=True)
def uncompiled_hypervolumes() -> Iterator[None]:
    """BoTorch's hypervolumes in Python: no test depends on a compiler and on what it left behind.

    At first use BoTorch compiles them for half a minute, under a lock in the user's cache that a
    killed run leaves there and on which every later run would wait without end.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logei, "_load_attempted", True)
        yield


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    """Processes to kill, which are forked from one."""
    with Children() as children:
        yield children
