"""The input transform that decodes design vectors to clouds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from gp_distributions.measures import PointClouds
from gp_distributions.measures.arrays import Data, double
from gp_distributions.measures.principal_shapes import PrincipalShapes
from gp_distributions.rows.clouds import join_rows

Decode = Callable[[Tensor], Tensor | tuple[Tensor, Tensor] | PointClouds]


class Decoder(InputTransform, torch.nn.Module):
    """Decode design vectors to rows, so that a model on designs sees their shapes.

    As the ``input_transform`` of a :class:`DistributionGP`, a decoder makes designs the inputs of the
    model: acquisition functions, ``optimize_acqf`` and fantasies work on bounded designs, with exact
    gradients through the decoder, while the kernel compares the decoded clouds. To rescale designs
    first, put BoTorch's ``Normalize`` before the decoder in a ``ChainedInputTransform``.

    Args:
        decode: A differentiable function that maps an ``N x k`` tensor of designs to the points of
            their clouds, an ``N x m x d`` tensor; or to points and ``N x m`` weights; or to
            :class:`PointClouds`. If your function decodes a single design, pass
            ``torch.vmap(function)``. If ``decode`` is a module, its parameters are not fitted with the
            model.

    Raises:
        TypeError: When called, if ``decode`` returns something else.
        ValueError: When called, if ``decode`` returns tensors of other shapes, points or weights that
            are not finite, or ones without a gradient where designs need one.

    Example:
        >>> import torch
        >>> from gp_distributions import Decoder
        >>> corners = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=torch.float64)
        >>> boxes = Decoder(lambda designs: designs.unsqueeze(-2) * corners)
        >>> designs = torch.tensor([[2.0, 3.0]], dtype=torch.float64)  # a width and a height
        >>> boxes.transform(designs).shape  # four corners with their weights
        torch.Size([1, 12])
        >>> boxes.clouds(designs).points[0, 2].tolist()
        [2.0, 3.0]
    """

    is_one_to_many = False
    transform_on_train = True
    transform_on_eval = True
    transform_on_fantasize = True

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        # The tuple keeps a module from being registered, which would fit its parameters.
        self._decode = (decode,)

    @staticmethod
    def from_examples(
        examples: Iterable[Any], num_components: int = 10, *, num_points: int = 128
    ) -> ShapeDecoder:
        r"""Learn a decoder from shapes whose points correspond, by principal components.

        A design has a number :math:`z_k` for each component :math:`c_k`, in standard deviations
        :math:`s_k` of the examples around their mean :math:`\bar v`,

        .. math:: v(z) = \bar v + \sum_k z_k s_k c_k,

        and its cloud an atom for each segment of the outline or triangle of the mesh, at the middle with
        the outward unit normal, weighted by length or area.

        Args:
            examples: Closed outlines in the plane, each an ``n_i x 2`` array, which become
                ``num_points`` points at equal arc length from their first point; or meshes with the
                same faces: pairs ``(vertices, faces)``, meshes of trimesh or paths of files. Align and
                scale them before: position and size are components, too.
            num_components: Number of components, fewer than examples.
            num_points: Number of points of an outline.

        Returns:
            The decoder.

        Raises:
            TypeError: If the examples are :class:`PointClouds`, whose atoms do not correspond.
            ValueError: If the examples do not correspond, or are no more than the components.

        Example:
            >>> import numpy as np
            >>> from gp_distributions import Decoder, DesignSearch
            >>> angles = np.linspace(0, 2 * np.pi, 64, endpoint=False)
            >>> circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
            >>> axes = np.random.default_rng(0).uniform(1, 2, size=(20, 1, 2))
            >>> decoder = Decoder.from_examples(list(axes * circle), num_components=2)
            >>> search = DesignSearch(decoder, decoder.bounds())
            >>> decoder.outline([0.0, 0.0]).shape, decoder.encode([circle]).shape
            (torch.Size([128, 2]), torch.Size([1, 2]))
        """
        return ShapeDecoder(PrincipalShapes.of(examples, num_components, num_points))

    @property
    def decode(self) -> Decode:
        """The function that decodes designs."""
        return self._decode[0]

    def transform(self, X: Tensor) -> Tensor:
        """Decode designs to rows.

        Args:
            X: A ``batch_shape x q x k`` tensor of designs.

        Returns:
            A ``batch_shape x q x m*(d+1)`` tensor of rows.
        """
        designs = X.reshape(-1, X.shape[-1])
        rows = join_rows(*self._decoded(designs)[:2])
        if torch.is_grad_enabled() and designs.requires_grad and not rows.requires_grad:
            raise ValueError(
                "Expected decode to be differentiable, but its points and weights do not depend on the "
                "designs for torch. Use operations of torch, without detach() or NumPy; for a function "
                "without gradients, search a pool of its shapes with PoolSearch."
            )
        finite = rows.isfinite().all(-1)
        if not finite.all():
            first = int((~finite).nonzero()[0])
            raise ValueError(
                "Expected decode to return finite points and weights, got NaN or infinity for design "
                f"{designs[first].tolist()}."
            )
        return rows.unflatten(0, X.shape[:-1])

    def clouds(self, designs: Tensor) -> PointClouds:
        """Decode designs to clouds.

        Args:
            designs: A ``batch_shape x k`` tensor of designs.

        Returns:
            The clouds, of batch shape ``batch_shape``.
        """
        shape = designs.shape[:-1]
        points, weights, known = self._decoded(designs.reshape(-1, designs.shape[-1]))
        points, weights = (t.reshape(*shape, *t.shape[1:]) for t in (points, weights))
        return PointClouds(points, weights, **known)

    def equals(self, other: InputTransform) -> bool:
        """Returns whether another transform is a decoder with the same function."""
        return isinstance(other, Decoder) and other.decode is self.decode

    def _decoded(self, designs: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Decode ``N x k`` designs to points, weights, and what else is known of clouds."""
        decoded, known = self.decode(designs), {}
        if isinstance(decoded, PointClouds):
            known = {"geometric": decoded.geometric, "num_normals": decoded.num_normals}
            decoded = decoded.points, decoded.weights
        elif isinstance(decoded, Tensor):
            decoded = decoded, decoded.new_ones(decoded.shape[:-1])
        if not isinstance(decoded, tuple) or [isinstance(p, Tensor) for p in decoded] != [True] * 2:
            raise TypeError(
                "Expected decode to return a tensor of points, a tuple of points and weights, or "
                f"PointClouds, got {decoded!r:.80}. Use operations of torch, which have gradients."
            )
        points, weights = decoded
        if points.dim() != 3 or len(points) != len(designs) or weights.shape != points.shape[:-1]:
            raise ValueError(
                f"Expected decode to return points of shape ({len(designs)}, m, d) and weights of shape "
                f"({len(designs)}, m) for {len(designs)} designs, got {tuple(points.shape)} and "
                f"{tuple(weights.shape)}."
            )
        return points, weights, known


class ShapeDecoder(Decoder):
    """A decoder learned from examples, which :meth:`Decoder.from_examples` returns.

    Args:
        shapes: The principal components of the examples.
    """

    decode: PrincipalShapes

    def __init__(self, shapes: PrincipalShapes) -> None:
        super().__init__(shapes)

    def bounds(self, deviations: float = 2.0) -> Tensor:
        """Return bounds of designs, ``2 x k``: so many standard deviations of the examples."""
        ones = self.decode.mean.new_ones(self.decode.num_components)
        return torch.stack([-deviations * ones, deviations * ones])

    def encode(self, examples: Iterable[Any]) -> Tensor:
        """Return the designs closest to shapes, ``N x k``, so that measured parts start a search.

        Raises:
            ValueError: If they do not correspond to the examples.
        """
        return self.decode.scores(examples)

    def outline(self, design: Data) -> Tensor:
        """Return the points of the outline of a design, ``n x 2``."""
        return self.decode.vertices(double(design, "design").reshape(1, -1))[0]

    def mesh(self, design: Data) -> tuple[Tensor, Tensor]:
        """Return the vertices of the mesh of a design, ``V x 3``, and the faces, ``F x 3``."""
        return self.outline(design), self.decode.faces

    def folds(self, designs: Tensor) -> Tensor:
        """Return which ``N x k`` designs fold: segments cross, or triangles turned over."""
        return self.decode.folds(designs)


@torch.no_grad()
def decodable(decode: Callable[[Tensor], Any], X: Tensor) -> Tensor:
    """Return the rows of ``X`` (``N x k``) that a function accepts, such as a posterior of designs.

    For the remaining rows the decoder raises an error or returns an invalid cloud.
    """
    try:
        decode(X)
    except Exception:  # decoders may raise any kind of error
        return X[:0] if len(X) == 1 else torch.cat([decodable(decode, x) for x in X.split(1)])
    return X
