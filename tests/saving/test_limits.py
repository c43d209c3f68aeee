"""Forged descriptions: files that ask for more memory or time than their size can need."""

import copy
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import as_rows, random_clouds
from fuzzing.mutations import header_of, resealed
from gpytorch.kernels import ScaleKernel

from gp_distributions import (
    MMD,
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    Fourier,
    RigidSlicedWasserstein,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    load,
    save,
)
from gp_distributions.context import setting
from gp_distributions.distances import fourier, mmd, rigid_sliced_wasserstein, sliced_wasserstein
from gp_distributions.distances.restoring import RESTORING
from gp_distributions.estimators import DistributionGPRegressor
from gp_distributions.saving import SavedModelError, description

ROWS = as_rows(random_clouds(8, dim=3, sizes=(3, 5)))
LABELS = ["a", "b"] * 4


@pytest.fixture
def forge(tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], object]], Path]:
    """Write a model whose header a function has changed, with a valid digest."""
    path = tmp_path / "model.gpd"
    save(
        ClassificationGP(ROWS, LABELS, ScaleKernel(SlicedWassersteinKernel(3, num_slices=4))), path
    )
    content = path.read_bytes()

    def forged(change: Callable[[dict[str, Any]], object]) -> Path:
        header = header_of(content)
        change(header)
        path.write_bytes(resealed(content, header))
        return path

    return forged


def module(cls: str, *positional: Any, **named: Any) -> Callable[[dict[str, Any]], None]:
    """Add a module to a header."""
    entry = {"class": cls, "positional": list(positional), "named": named}
    return lambda header: header["objects"].append(entry)


def doubled(header: dict[str, Any]) -> None:
    """Sums of twice the same sum: forty of them have 2^40 terms."""
    for _ in range(40):
        last = {"object": len(header["objects"]) - 1}
        module("gpytorch.AdditiveKernel", last, last)(header)


def nested(header: dict[str, Any]) -> None:
    for _ in range(2000):
        module("gpytorch.AdditiveKernel", {"object": len(header["objects"]) - 1})(header)


def expanded(header: dict[str, Any]) -> None:
    header["model"]["inputs"] = {"expanded": [0, [10**6, 10**6]]}


def wide(header: dict[str, Any]) -> None:
    header["model"]["labels"]["dtype"] = "<U500000000"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (doubled, "modules within a module"),
        (nested, "modules one within the other"),
        (expanded, "elements of an expanded tensor"),
        (wide, "bytes of an array"),
        (module("gpytorch.RFFKernel", num_samples=30_000, num_dims=30_000), "elements of a tensor"),
        (module("gpytorch.Kernel", batch_shape={"size": [30_000, 30_000]}), "elements of a tensor"),
        (
            module("gpytorch.NewtonGirardAdditiveKernel", num_dims=[30_000, 30_000]),
            "elements of a tensor",
        ),
        (module("gpytorch.RFFKernel", {"tuple": [30_000, 30_000]}), "elements of a tensor"),
        (module("gpytorch.Kernel", batch_shape=[30_000, 30_000]), "sizes of axes"),
        (module("gp_distributions.SlicedWasserstein", dim=3, num_slices=10**8), "num_slices"),
        (
            module("gp_distributions.BlockKernel", {"object": 0}, columns={"object": 0}),
            "indices",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_requests_beyond_the_size_of_the_file(change: Any, named: str, forge: Any) -> None:
    with pytest.raises(SavedModelError, match=f"cannot be restored here.*{named}"):
        load(forge(change))


@pytest.mark.parametrize("value", [10**9, -(10**12), {"size": [10**5, 10**5]}, [10**9]])
def test_no_argument_of_any_class_takes_memory(value: Any) -> None:
    """Every class of the list, each argument in turn: an error, or a small module."""
    for name, cls in description._NAMED.items():
        required = {
            p.name: 1 for p in inspect.signature(cls).parameters.values() if p.default is p.empty
        }
        for parameter in inspect.signature(cls).parameters:
            entry = {"class": name, "positional": [], "named": {**required, parameter: value}}
            with setting(RESTORING, True):
                try:
                    description.restore([entry], [torch.zeros(10)])
                except Exception as error:
                    refused = f"{type(error).__name__}: {error}"
                    assert "allocate" not in refused
                    assert "MemoryError" not in refused


def test_many_columns_of_other_kernels_are_restored() -> None:
    """Their product is no number of elements."""
    named = {"active_dims": {"tuple": list(range(1, 31))}}
    entry = {"class": "gpytorch.RBFKernel", "positional": [], "named": named}
    kernel = description.restore([entry], [])({"object": 0})
    assert len(kernel.active_dims) == 30


def test_models_of_many_outputs_and_large_seeds_are_restored(tmp_path: Path) -> None:
    targets = torch.randn(8, 120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shape = torch.Size([120])
    distance = MMD(3, num_features=4, bandwidth=1.0, seed=2**63)
    kernel = DistributionKernel(distance, batch_shape=shape)
    model = DistributionGP(ROWS, targets, ScaleKernel(kernel, batch_shape=shape))
    save(model, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model").predict(ROWS)[0], model.predict(ROWS)[0])


@pytest.mark.parametrize(
    ("distance", "place", "name"),
    [
        (SlicedWasserstein(3, num_slices=5), sliced_wasserstein._SAMPLINGS, "even"),
        (MMD(3, num_features=6), mmd.SAMPLINGS, "orthogonal"),
        (Fourier(3, num_frequencies=4), fourier.SAMPLINGS, "orthogonal"),
        (RigidSlicedWasserstein(3), vars(rigid_sliced_wasserstein), "sphere_harmonics"),
    ],
    ids=lambda value: getattr(value, "__class__", type(value)).__name__,
)
def test_what_the_file_holds_is_not_computed(
    distance: Any, place: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directions take up to a second; in a forged file, as long as it says."""
    model = DistributionGP(ROWS, ROWS[:, 0], DistributionKernel(copy.deepcopy(distance)))
    save(model, tmp_path / "model")
    estimator = DistributionGPRegressor(copy.deepcopy(distance), restarts=0)
    bags = list(ROWS.unflatten(-1, (-1, 4))[..., :3].numpy())
    save(estimator.fit(bags, ROWS[:, 0].numpy()), tmp_path / "estimator")
    monkeypatch.setitem(place, name, pytest.fail)
    assert torch.equal(load(tmp_path / "model").predict(ROWS)[0], model.predict(ROWS)[0])
    again = load(tmp_path / "estimator")
    assert (again.predict(bags) == estimator.predict(bags)).all()
    for before, after in zip(
        estimator.distance.state_dict().values(), again.distance.state_dict().values(), strict=True
    ):
        assert torch.equal(before.nan_to_num(), after.nan_to_num())
