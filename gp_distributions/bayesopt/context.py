"""Bags that are given for each proposal, such as the raw material of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gp_distributions.bayesopt.decoder import Decoder
from gp_distributions.bayesopt.parts import FinitePart, Plain
from gp_distributions.bayesopt.pool import Asked, Pool
from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import Wording, check_type, validated
from gp_distributions.rows.layout import Columns


class Context(FinitePart):
    """A bag that is given as a part of a :class:`MixedSearch`; ``ask(fixed=)`` fixes it.

    Any bag of this dimension can be fixed and told, as a cloud or an array of atoms; a checkpoint keeps
    its points and weights.

    Args:
        clouds: Examples of bags, such as those of earlier batches. Default kernels measure coordinates
            in their spread.

    Raises:
        TypeError: If ``clouds`` are not :class:`PointClouds`.

    Example:
        >>> import numpy as np
        >>> from gp_distributions import MixedSearch, PointClouds, ShapeOptimizer
        >>> from gp_distributions.bayesopt import Context
        >>> feeds = PointClouds.from_list([[1.0, 2.0], [2.0, 3.0, 5.0]])
        >>> search = MixedSearch(feed=Context(feeds), temperature=(60.0, 90.0), rate=(1.0, 2.0))
        >>> optimizer = ShapeOptimizer(search)
        >>> fixed = {"feed": np.array([[1.5], [4.0]]), "temperature": 80.0}  # this batch, and today
        >>> (candidate,) = optimizer.ask(fixed=fixed)
        >>> candidate["feed"].points.flatten().tolist(), candidate["temperature"]
        ([1.5, 4.0], 80.0)
    """

    dim: int
    clouds: PointClouds

    def __init__(self, clouds: PointClouds) -> None:
        check_type(clouds, PointClouds)
        self.dim = clouds.dim
        self.clouds = clouds
        # All bags that were seen. An input of a model is the position of its bag.
        self._bags: list[dict[str, Any]] = []
        self._pool: Pool
        self.input_transform = Decoder(self._clouds_at)
        self.inputs([_written(clouds[i]) for i in range(len(clouds))])

    def describe(self) -> dict[str, Any]:
        """Return the kind of part and the dimension of bags."""
        return {"kind": "context", "dim": self.dim}

    def choices(self) -> list[dict[str, Any]]:
        """Returns the bags that were seen."""
        return self._bags

    def inputs(self, candidates: Plain) -> Tensor:
        """Returns the positions of bags among those that were seen, which they join."""
        before = len(self._bags)
        for bag in candidates:
            if bag not in self._bags:
                self._bags.append(bag)
        if len(self._bags) > before:
            self._pool = Pool(PointClouds.from_list([self.show(bag) for bag in self._bags]))
        places = [self._bags.index(bag) for bag in candidates]
        return self._pool.rows.new_tensor(places).unsqueeze(-1)

    def asked(self, module: torch.nn.Module, columns: Columns) -> Asked:
        """Returns what looks the distances of bags up."""
        return self._pool.asked(module, columns)

    def show(self, candidate: Mapping[str, Any]) -> PointClouds:
        """Returns the cloud."""
        like = self.clouds
        points, weights = (like.weights.new_tensor(candidate[n]) for n in ("points", "weights"))
        return like._alike(*validated(points, weights, Wording()), labels=None)

    def plain(self, candidate: Any) -> dict[str, Any]:
        """Returns the points and weights of a bag, without padding."""
        if isinstance(candidate, Mapping):
            candidate = self.show(candidate)
        if not isinstance(candidate, PointClouds):
            candidate = PointClouds.from_list([candidate])[0]
        if candidate.batch_shape or candidate.dim != self.dim:
            raise ValueError(f"Expected one bag of dimension {self.dim}, got {candidate!r:.80}.")
        return _written(candidate)

    def _clouds_at(self, places: Tensor) -> PointClouds:
        clouds = self._pool.clouds
        assert isinstance(clouds, PointClouds)
        found = clouds[places[:, 0].long()]
        # Decoders have gradients, which are zero here.
        return PointClouds._unchecked(found.points, found.weights + 0 * places)


def _written(cloud: PointClouds) -> dict[str, Any]:
    present = cloud.weights > 0
    return {"points": cloud.points[present].tolist(), "weights": cloud.weights[present].tolist()}
