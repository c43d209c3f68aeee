"""Designs that stand for clouds: the input transform that decodes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from gp_distributions.measures import PointClouds
from gp_distributions.rows.clouds import join_rows

Decode = Callable[[Tensor], Tensor | tuple[Tensor, Tensor] | PointClouds]


class Decoder(InputTransform, torch.nn.Module):
    """Decode design vectors to rows, so that a model on designs sees their shapes.

    As the ``input_transform`` of a :class:`DistributionGP` it makes designs the model's inputs:
    acquisition functions, ``optimize_acqf`` and fantasies work on the bounded designs, with exact
    gradients through the decoder, while covariances are those of the clouds. To scale designs first,
    chain it behind BoTorch's ``Normalize`` by ``ChainedInputTransform``.

    Args:
        decode: A differentiable function of an ``N x k`` tensor of designs that returns the points of
            their clouds, an ``N x m x d`` tensor; or points and weights ``N x m``; or
            :class:`PointClouds`. ``torch.vmap`` makes one of a function of a single design. It is
            fixed: if it is a module, its parameters are not fitted with the model.

    Raises:
        ValueError: On evaluation, if ``decode`` returns other shapes, or points or weights that are
            not finite.
    """

    is_one_to_many = False
    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        # In a tuple a module is no child, whose parameters would be fitted.
        self._decode = (decode,)

    @property
    def decode(self) -> Decode:
        """The function that was given."""
        return self._decode[0]

    def transform(self, X: Tensor) -> Tensor:
        """The rows of designs.

        Args:
            X: A ``batch_shape x q x k`` tensor.

        Returns:
            A ``batch_shape x q x m*(d+1)`` tensor.
        """
        designs = X.reshape(-1, X.shape[-1])
        decoded = self.decode(designs)
        if isinstance(decoded, PointClouds):
            points, weights = decoded.points, decoded.weights
        elif isinstance(decoded, Tensor):
            points, weights = decoded, decoded.new_ones(decoded.shape[:-1])
        else:
            points, weights = decoded
        if points.dim() != 3 or len(points) != len(designs) or weights.shape != points.shape[:-1]:
            raise ValueError(
                f"Expected decode to make points of shape ({len(designs)}, m, d), and weights of shape "
                f"({len(designs)}, m), of {len(designs)} designs, got {tuple(points.shape)} and "
                f"{tuple(weights.shape)}."
            )
        rows = join_rows(points, weights)
        finite = rows.isfinite().all(-1)
        if not bool(finite.all()):
            first = int((~finite).nonzero()[0])
            raise ValueError(
                "Expected decode to make finite points and weights, but those of design "
                f"{designs[first].tolist()} are not."
            )
        return rows.unflatten(0, X.shape[:-1])

    def clouds(self, designs: Tensor) -> PointClouds:
        """The clouds of designs.

        Args:
            designs: A ``batch_shape x k`` tensor.

        Returns:
            The clouds, of that batch shape.
        """
        decoded = self.decode(designs.reshape(-1, designs.shape[-1]))
        if not isinstance(decoded, PointClouds):
            pair = (decoded, None) if isinstance(decoded, Tensor) else decoded
            decoded = PointClouds(*pair)
        shape = designs.shape[:-1]
        points, weights = (
            t.reshape(*shape, *t.shape[1:]) for t in (decoded.points, decoded.weights)
        )
        return PointClouds(points, weights)

    def equals(self, other: InputTransform) -> bool:
        """Whether another transform decodes by the same function."""
        return isinstance(other, Decoder) and other.decode is self.decode


@torch.no_grad()
def decodable(model: Model, X: Tensor) -> Tensor:
    """Those of ``N x k`` inputs of a fitted model that its input transform makes clouds of.

    The others stand for no shape: their decoding fails, or what it makes is no cloud. Of a model without
    an input transform they are all.
    """
    if not any(isinstance(module, InputTransform) for module in model.modules()):
        return X
    try:
        model.posterior(X)
    except Exception:  # of whatever kind a decoder raises
        return X[:0] if len(X) == 1 else torch.cat([decodable(model, x) for x in X.split(1)])
    return X
