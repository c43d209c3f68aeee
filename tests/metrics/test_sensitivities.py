"""Sensitivities are the derivatives of predictions, and their plot shows them."""

import numpy as np
import pytest
import torch
from cases import randn, random_clouds

from gp_distributions import DistributionGP, PointClouds
from gp_distributions.metrics import sensitivity
from gp_distributions.plotting import plot_sensitivity


def clouds(num: int, seed: int) -> PointClouds:
    drawn = random_clouds(num, seed=seed, sizes=(3, 8))
    return PointClouds.from_list([x for x, _ in drawn], [w for _, w in drawn])


def model(*, outputs: bool = False) -> DistributionGP:
    X = clouds(20, 0)
    Y = 100 * torch.stack([X.points[:, 0, 0].sin(), X.points[:, 0, 1].cos()], -1)
    return DistributionGP(X, Y if outputs else Y[:, 0]).eval()


@pytest.mark.parametrize("outputs", [False, True])
def test_finite_differences(outputs: bool) -> None:
    gp, X = model(outputs=outputs), clouds(3, 1)
    found = sensitivity(gp, X, batch_size=2)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        directions = [randn(x.shape, seed=generator) for x in (X.points, X.weights)]
        occupied = X.weights > 0
        move, change = directions[0] * occupied.unsqueeze(-1), directions[1] * X.weights

        def predict(step: float, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
            # Rows rather than clouds, because weights of rows need not sum to one.
            rows = torch.cat([X.points + step * x, (X.weights + step * w).unsqueeze(-1)], -1)
            mean, std = gp.predict(rows.flatten(-2), observation_noise=False)
            return mean.movedim(0, -1), std.square().movedim(0, -1)

        for x, w in ((move, 0 * change), (0 * move, change)):
            step = 1e-7  # hardly any atoms change places within it
            pairs = zip(predict(step, x, w), predict(-step, x, w), strict=True)
            numeric = [(up - down) / (2 * step) for up, down in pairs]
            for name, expected in zip(("mean", "variance"), numeric, strict=True):
                by_points = (getattr(found, f"{name}_points") * x).sum((-1, -2))
                by_weights = (getattr(found, f"{name}_weights") * w).sum(-1)
                torch.testing.assert_close(
                    by_points + by_weights,
                    expected,
                    rtol=1e-5,
                    atol=1e-6 * expected.abs().max().item(),
                )


def test_wrong_inputs() -> None:
    with pytest.raises(TypeError, match="PointClouds"):
        sensitivity(model(), clouds(2, 1).pack())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one axis"):
        sensitivity(model(), clouds(2, 1)[0])


def test_picture() -> None:
    found = sensitivity(model(), clouds(3, 1))
    for index in range(3):
        size = int(found.clouds.sizes[index])
        ax = plot_sensitivity(found, index)
        arrows = ax.collections[1]
        assert len(arrows.U) == size
        gradient = found.mean_points[index, :size].numpy()
        drawn = np.stack([arrows.U, arrows.V], -1)
        np.testing.assert_allclose(
            drawn / np.linalg.norm(drawn, axis=1).max(),
            gradient / np.linalg.norm(gradient, axis=1).max(),
        )
    with pytest.raises(ValueError, match="mean"):
        plot_sensitivity(found, of="std")
