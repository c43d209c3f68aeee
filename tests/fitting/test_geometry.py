"""Shapes are compared in any pose where targets that are left out say so, and else in their own."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from cases import reloaded
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    MixedInputs,
    PointClouds,
    SharedKernelGP,
    SparseClassificationGP,
    SparseDistributionGP,
    VariationalDistributionGP,
    fit,
)
from gp_distributions.kernels.reading import default_distances

pytestmark = pytest.mark.usefixtures("shortest_fits")


def ovals(
    num: int = 40, seed: int = 0, *, turned: bool = True
) -> tuple[PointClouds, Tensor, Tensor]:
    """Outlines of ovals, their lengths and the angles by which they are turned."""
    lengths, angles = np.random.default_rng(seed).uniform(
        [[1.5], [0.0]], [[3.0], [np.pi]], (2, num)
    )
    t = 2 * np.pi * np.arange(24) / 24
    z = np.outer(lengths, np.cos(t)) + 1j * np.sin(t)
    z *= np.exp(1j * angles * turned)[:, None]
    X = PointClouds.from_curves(list(np.stack([z.real, z.imag], axis=-1)), normals=True)
    return X, torch.from_numpy(lengths), torch.from_numpy(angles)


def in_any_pose(model: Any) -> bool:
    (distance,) = default_distances(model.covar_module)
    assert model.choice.any_pose is distance.any_pose
    return distance.any_pose


MODELS = {
    "one": lambda X, y: DistributionGP(X, y),
    "several": lambda X, y: SharedKernelGP(X, torch.stack([y, -y], -1)),
    "classes": lambda X, y: ClassificationGP(X, (y > 2.2).tolist()),
    "mixed": lambda X, y: DistributionGP(MixedInputs(outline=X, age=y.flip(0)), y),
    "sparse": lambda X, y: SparseDistributionGP(X, y, num_inducing=10),
    "sparse classes": lambda X, y: SparseClassificationGP(X, (y > 2.2).tolist(), num_inducing=10),
    "counts": lambda X, y: VariationalDistributionGP(X, (8 * y).round(), likelihood="poisson"),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_models(name: str) -> None:
    X, lengths, _ = ovals()
    model = fit(MODELS[name](X, lengths), progress=False)
    assert in_any_pose(model)
    assert "shapes in any pose" in str(model.choice)
    new = MixedInputs(outline=X[:5], age=lengths[:5]) if name == "mixed" else X[:5]
    for other in (reloaded(model), pickle.loads(pickle.dumps(model))):
        assert other.choice == model.choice
        assert torch.equal(other.posterior(new).mean, model.posterior(new).mean)


def test_states_have_the_pose_and_fits_choose_it_anew() -> None:
    X, lengths, angles = ovals()
    model, fresh = fit(DistributionGP(X, lengths), progress=False), DistributionGP(X, lengths)
    fresh.load_state_dict(model.members[0].state_dict())
    assert in_any_pose(model)
    torch.testing.assert_close(fresh.predict(X), model.members[0].predict(X))
    fresh.load_state_dict(DistributionGP(X, lengths).state_dict())
    assert not default_distances(fresh.covar_module)[0].any_pose
    model.set_train_data(targets=torch.sin(2 * angles), strict=False)
    assert not in_any_pose(fit(model, progress=False))


@pytest.mark.parametrize("why", ["the pose tells", "nothing tells", "aligned", "few"])
def test_else_the_pose_counts(why: str) -> None:
    X, y, angles = ovals(15 if why == "few" else 40, turned=why != "aligned")
    noise = torch.randn(40, generator=torch.Generator().manual_seed(0)).double()
    y = {"the pose tells": torch.sin(2 * angles), "nothing tells": noise}.get(why, y)
    assert not in_any_pose(fit(DistributionGP(X, y), progress=False))
