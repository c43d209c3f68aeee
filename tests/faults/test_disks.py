"""Full disks, folders in which nothing can be written, and clocks that jump."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fault_tasks import clouds, optimizer, value

from gp_distributions import (
    DistributionGP,
    SlicedWassersteinKernel,
    save,
)


def model() -> DistributionGP:
    X = clouds(12)
    kernel = SlicedWassersteinKernel(2, num_slices=4, num_quantiles=4)
    return DistributionGP(X, X.points.mean((1, 2)), kernel)


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Let no file grow beyond a size; longer ones stay."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def snapshot(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.iterdir() if not path.name.endswith(".lock")]
    return {path.name: path.read_bytes() for path in files}


def test_full_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(model(), tmp_path / "model.gp")
    whole = (tmp_path / "model.gp").stat().st_size
    path = tmp_path / "disk" / "model.gp"
    path.parent.mkdir()
    for is_new in (True, False):
        if not is_new:
            save(model(), path)
        before = snapshot(path.parent)
        for size in (0, 1000, whole - 1):
            unchanged = f"Nothing was written to {path}"
            with pytest.raises(OSError, match=unchanged) as raised, small_files(size):
                save(model(), path)
            assert raised.value.errno == errno.EFBIG
            assert snapshot(path.parent) == before
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                save(model(), path)
        assert snapshot(path.parent) == before


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fault", ["limit", "fsync"])
def test_searches_on_full_disks(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "search.jsonl"
    made = optimizer("random", str(path)).run(value, 3, progress=False)
    before = snapshot(tmp_path)
    with monkeypatch.context() as patch:
        if fault == "fsync":
            patch.setattr(os, "fsync", full)
        limit = len(before[path.name]) + 9 if fault == "limit" else resource.RLIM_INFINITY
        with pytest.raises(OSError, match="was not recorded") as raised, small_files(limit):
            made.run(value, 5, progress=False)
    assert str(path) in str(raised.value)
    assert "Evaluation(candidate=" in str(raised.value)
    assert snapshot(tmp_path) == before
    assert len(made.evaluations) == 3
    expected = optimizer("random", None).run(value, 5, progress=False).evaluations
    assert made.run(value, 5, progress=False).evaluations == expected
    assert optimizer("random", str(path)).evaluations == expected
