"""The pictures show what they are given."""

from collections.abc import Iterator

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from gp_distributions import PointClouds
from gp_distributions.plotting import plot_clouds, plot_predictions, plot_reference_path


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    mpl.use("Agg")
    yield
    plt.close("all")


def test_predictions_count_the_misses() -> None:
    truth = torch.tensor([0.0, 1.0, 2.0, 3.0])
    ax = plot_predictions(truth, truth + torch.tensor([0.0, 0.0, 0.0, 1.0]), 0.1 * torch.ones(4))
    assert "misses the truth (25.0%)" in [text.get_text() for text in ax.get_legend().get_texts()]
    again = plot_predictions(truth, truth, 0.1 * torch.ones(4), label="drag", ax=plt.figure().gca())
    assert again.get_xlabel() == "true drag"


def test_interval_has_the_level() -> None:
    ax = plot_predictions([0.0], [0.0], [1.0], level=0.6826894921370859)
    segment = ax.containers[0].lines[2][0].get_segments()[0]
    np.testing.assert_allclose(segment[:, 1], [-1.0, 1.0], rtol=1e-9)


@pytest.mark.parametrize("outline", [True, False])
def test_gallery_has_one_axes_for_each_cloud(outline: bool) -> None:
    clouds = [np.random.default_rng(i).normal(size=(5, 2)) for i in range(6)]
    axes = plot_clouds(clouds, titles=[str(i) for i in range(6)], columns=4, outline=outline)
    assert [ax.get_title() for ax in axes] == [str(i) for i in range(6)]
    assert plot_clouds(clouds, axes=axes) == axes


def test_path_joins_start_and_end() -> None:
    path = np.random.default_rng(0).normal(size=(4, 3, 2))
    ax = plot_reference_path(path, clouds=PointClouds(path))
    assert len(ax.lines) == 3
    np.testing.assert_allclose(ax.lines[1].get_xydata(), path[:, 1])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["data", "start", "learned"]
