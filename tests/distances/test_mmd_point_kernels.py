"""MMD with kernels on atoms that are given as functions or as GPyTorch kernels."""

from pathlib import Path

import pytest
import torch
from cases import as_rows, random_clouds
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from gp_distributions import MMD, DistributionGP, MMDKernel
from gp_distributions.numerics import mean_embeddings
from gp_distributions.saving import save
from gp_distributions.testing import DistanceTestCase

CLOUDS = random_clouds(7, sizes=(2, 9))
ROWS = as_rows(CLOUDS)


def marked(x: Tensor, y: Tensor) -> Tensor:
    """Compare the first coordinate of atoms whose second one rounds to the same label."""
    same = x[..., :, None, 1].round() == y[..., None, :, 1].round()
    return torch.exp(-(x[..., :, None, 0] - y[..., None, :, 0]).square()) * (1.0 + same)


def smooth(x: Tensor, y: Tensor) -> Tensor:
    return (1 + x @ y.mT).square() + torch.cos(x[..., :1] - y[..., :1].mT)


def by_loops(rows: list[tuple[Tensor, Tensor]]) -> Tensor:
    products = torch.tensor(
        [[float(w @ marked(x, y) @ v) for y, v in rows] for x, w in rows], dtype=torch.float64
    )
    norms = products.diagonal()
    return norms[:, None] + norms - 2 * products


class TestConformance(DistanceTestCase):
    def create_distance(self, **options: object) -> MMD:
        return MMD(2, kernel=smooth)


del DistanceTestCase


class TestValues:
    @pytest.mark.parametrize("block", [1, 50, 2**20])
    def test_agree_with_loops(self, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mean_embeddings, "_BLOCK", 2 * block)
        expected = by_loops([(x, w / w.sum()) for x, w in CLOUDS])
        squared = MMD(2, kernel=marked).squared(ROWS)
        torch.testing.assert_close(squared, expected, rtol=1e-10, atol=1e-13)
        across = MMD(2, kernel=marked).squared(ROWS[:3], ROWS[2:])
        torch.testing.assert_close(across, expected[:3, 2:], rtol=1e-10, atol=1e-13)

    @pytest.mark.parametrize("options", [{"normalize": True}, {"num_features": 12}])
    def test_of_variants_are_those_of_the_named_kernel(self, options: dict[str, object]) -> None:
        kernel = RBFKernel().double()
        named = MMD(2, bandwidth=kernel.lengthscale.item(), **options | _landmarks(options))
        own = MMD(2, kernel=kernel, **options | _landmarks(options))
        torch.testing.assert_close(own.squared(ROWS), named.squared(ROWS), rtol=1e-6, atol=1e-8)


def _landmarks(options: dict[str, object]) -> dict[str, str]:
    return {"features": "landmarks"} if "num_features" in options else {}


class TestModels:
    def model(self, kernel: object) -> DistributionGP:
        targets = torch.linspace(-1, 1, len(ROWS)).double().square()
        return DistributionGP(ROWS, targets, ScaleKernel(MMDKernel(2, kernel=kernel)))  # type: ignore[arg-type]

    def test_do_not_learn_the_kernel_on_atoms(self) -> None:
        """Its scale is not that of the model."""
        point_kernel = ScaleKernel(RBFKernel())
        model = self.model(point_kernel)
        names = {name for name, _ in model.covar_module.named_parameters()}
        assert names == {"raw_outputscale", "base_kernel.raw_lengthscale"}
        assert sum(isinstance(part, ScaleKernel) for part in model.modules()) == 1

    def test_refuse_to_be_saved(self, tmp_path: Path) -> None:
        for kernel in (marked, RBFKernel()):
            with pytest.raises(TypeError, match=r"A PointKernel as MMDKernel\.kernel cannot"):
                save(self.model(kernel), tmp_path / "model")
