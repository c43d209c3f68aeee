"""Kernels on blocks of rows, and their products and sums."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from gp_distributions import (
    DistributionKernel,
    Gaussians,
    MixedInputs,
    MMDKernel,
    PointClouds,
    SlicedWassersteinKernel,
    mixed_kernel,
)
from gp_distributions.kernels.covariances import covariance
from gp_distributions.kernels.mixed import STRUCTURES
from gp_distributions.kernels.reading import check_kind
from gp_distributions.rows.layout import Block

RNG = np.random.default_rng(0)
N = 7
CELLS = PointClouds.from_list([RNG.normal(size=(i + 2, 2)) for i in range(N)])
NERVES = PointClouds.from_list([RNG.normal(size=(9 - i, 1)) for i in range(N)])
BLOOD = Gaussians.from_clouds(PointClouds(RNG.normal(size=(N, 9, 2))))
AGE, DOSE, ARM, SEX = RNG.uniform(20, 80, N), RNG.normal(size=N), list("abcabca"), list("xyxyyxx")
X = MixedInputs(
    cells=CELLS,
    nerves=NERVES,
    blood=BLOOD,
    covariates={"age": AGE, "arm": ARM, "dose": DOSE, "sex": SEX},
)
SMALL = {"num_slices": 5, "num_quantiles": 10}


def kernels() -> dict[str, DistributionKernel]:
    cells = SlicedWassersteinKernel(2, **SMALL)
    nerves = MMDKernel(1, bandwidth=0.7)
    blood = SlicedWassersteinKernel(2, inputs="gaussians", profile="gaussian", **SMALL)
    for kernel, lengthscale in ((cells, 0.8), (nerves, 0.3), (blood, 1.1)):
        kernel.lengthscale = lengthscale
    return {"cells": cells, "nerves": nerves, "blood": blood}


def covariates_by_hand() -> Tensor:
    """Matern 5/2 of two standardised numbers at lengthscale sqrt(2), and exp of half the mismatches."""
    scaled = np.stack([(v - v.mean()) / v.std() for v in (AGE, DOSE)], axis=-1) / np.sqrt(2)
    distance = np.sqrt(5 * np.square(scaled[:, None] - scaled[None]).sum(-1))
    matern = (1 + distance + distance**2 / 3) * np.exp(-distance)
    differ = sum((np.array(c)[:, None] != np.array(c)[None]).astype(float) for c in (ARM, SEX))
    return torch.from_numpy(matern * np.exp(-differ / 2))


def parts_by_hand() -> list[Tensor]:
    given = kernels()
    with torch.no_grad():
        parts = [given[name](X.blocks[name].pack()).to_dense() for name in given]
    return [*parts, covariates_by_hand()]


class TestMixedKernel:
    def test_structures(self) -> None:
        parts = torch.stack(parts_by_hand())
        product, total = parts.prod(0), parts.sum(0)
        expected = {"product": product, "sum": total / 4, "sum+product": (total + product) / 5}
        assert expected.keys() == set(STRUCTURES)
        for structure in STRUCTURES:
            kernel = mixed_kernel(X, kernels(), structure=structure).double()
            with torch.no_grad():
                lazy, direct = kernel(X.pack()).to_dense(), covariance(kernel, X.pack())
                diagonal = covariance(kernel, X.pack(), diag=True)
            torch.testing.assert_close(lazy, expected[structure], rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(direct, lazy, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(diagonal, lazy.diagonal(), rtol=1e-12, atol=1e-12)

    def test_a_kernel_of_covariates(self) -> None:
        inputs = MixedInputs(cells=CELLS, age=AGE)
        rbf = RBFKernel().double()
        kernel = mixed_kernel(inputs, {"age": rbf, "cells": kernels()["cells"]}).double()
        age = torch.from_numpy((AGE - AGE.mean()) / AGE.std()).unsqueeze(-1)
        expected = parts_by_hand()[0] * rbf(age).to_dense()
        torch.testing.assert_close(kernel(inputs.pack()).to_dense(), expected, rtol=1e-6, atol=1e-7)

    def test_refuses(self) -> None:
        with pytest.raises(ValueError, match="structure"):
            mixed_kernel(X, structure="anova")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"blocks \['cells', .*got one of 'cell'"):
            mixed_kernel(X, {"cell": MMDKernel(2)})


class TestBlockKernel:
    def test_batches_share_distances(self) -> None:
        kernel = mixed_kernel(X, batch_shape=torch.Size([2]), structure="sum")
        second = kernel[1]
        assert second.batch_shape == torch.Size()
        used, shared = (
            {k.distance for k in m.modules() if isinstance(k, DistributionKernel)}
            for m in (second, kernel)
        )
        assert used == shared
        both = kernel(X.pack()).to_dense()
        torch.testing.assert_close(second(X.pack()).to_dense(), both[1])

    def test_parts_of_slots_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"slots of .* columns each, got rows of"):
            mixed_kernel(X)(X.pack()[:, :-1]).to_dense()

    def test_gradients_reach_all_blocks_but_categories(self) -> None:
        rows = X.pack().requires_grad_()
        kernel = mixed_kernel(X, kernels()).double()
        weights = torch.rand(N, N, generator=torch.Generator().manual_seed(0)).double()
        (covariance(kernel, rows) * weights).sum().backward()
        assert rows.grad is not None
        assert bool(rows.grad.isfinite().all())
        columns = X.encoding.columns
        reached = {
            name: Block("indices", 1, c).select(rows.grad).any(0) for name, c in columns.items()
        }
        assert reached["covariates"].tolist() == [True, False, True, False]
        assert all(bool(found.any()) for found in reached.values())


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (SlicedWassersteinKernel(2, **SMALL), "mixed_kernel"),
        (RBFKernel(), "mixed_kernel"),
        (mixed_kernel(MixedInputs(cells=CELLS)), "mixed_kernel"),
        (mixed_kernel(X, {"cells": MMDKernel(3)}), r"block 'cells', PointClouds.* dimension 3"),
        (mixed_kernel(X, {"covariates": MMDKernel(3)}), "block 'covariates'"),
    ],
    ids=range(5),
)
def test_kernels_of_other_inputs_are_refused(kernel: torch.nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_kind(X, kernel)
