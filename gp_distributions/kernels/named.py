"""Kernels named after their distance, each of which combines that distance with a profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.transport import SinkhornPotential
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.profiles import Profile
from gp_distributions.measures.arrays import Data
from gp_distributions.measures.gaussians import Distributions
from gp_distributions.measures.reference import ReferenceMeasure


class SlicedWassersteinKernel(DistributionKernel):
    """Kernel of a :class:`SlicedWasserstein` distance.

    Arguments that are not described below are passed on to :class:`SlicedWasserstein`.

    Args:
        profile: Profile, or the name of one; see :class:`DistributionKernel`.
        origin: Origin of inner products; see :class:`DistributionKernel`.
        **kwargs: GPyTorch options; see :class:`DistributionKernel`.

    Raises:
        ValueError: If the distance or the kernel rejects an argument.

    Example:
        >>> from gp_distributions import PointClouds, SlicedWassersteinKernel
        >>> kernel = SlicedWassersteinKernel(dim=1, p=1, profile="exponential")
        >>> rows = PointClouds.from_list([[[0.0], [2.0]], [[1.0]]]).pack()
        >>> kernel(rows).to_dense().shape
        torch.Size([2, 2])

    Source: Meunier, Pontil and Ciliberto 2022; Kolouri, Zou and Rohde 2016.
    """

    def __init__(
        self,
        dim: int,
        *,
        inputs: str = "clouds",
        profile: str | Profile = "matern52",
        p: int = 2,
        num_slices: int = 100,
        num_quantiles: int | None = 100,
        center: bool = False,
        sampling: str = "even",
        seed: int = 0,
        origin: Distributions | Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        distance = SlicedWasserstein(
            dim,
            inputs=inputs,
            p=p,
            num_slices=num_slices,
            num_quantiles=num_quantiles,
            center=center,
            sampling=sampling,
            seed=seed,
        )
        super().__init__(distance, profile, origin=origin, **kwargs)


class MMDKernel(DistributionKernel):
    """Kernel of an :class:`MMD` distance.

    Arguments that are not described below are passed on to :class:`MMD`.

    With ``profile="linear"``, this is the set kernel. The radial profiles give the level-2 kernels that
    are functions of the distance between mean embeddings.

    Args:
        kernel: Embedding kernel on the points: a name, a function, a GPyTorch kernel or, for atoms of
            any kind, a matrix; see :class:`MMD`.
        profile: Profile of the distance, or the name of one; see :class:`DistributionKernel`.
        origin: Origin of inner products; see :class:`DistributionKernel`.
        **kwargs: GPyTorch options; see :class:`DistributionKernel`.

    Raises:
        ValueError: If the distance or the kernel rejects an argument.

    Example:
        >>> from gp_distributions import MMDKernel, PointClouds
        >>> kernel = MMDKernel(dim=1, kernel="laplace", bandwidth=0.5)
        >>> rows = PointClouds.from_list([[[0.0], [2.0]], [[1.0]]]).pack()
        >>> kernel(rows).to_dense().shape
        torch.Size([2, 2])

    Source: Szabo et al. 2015, table 1; Muandet et al. 2012.
    """

    def __init__(
        self,
        dim: int = 1,
        *,
        inputs: str = "clouds",
        profile: str | Profile = "matern52",
        kernel: str | Data | Callable[..., Any] = "gaussian",
        atoms: Sequence[Any] | None = None,
        bandwidth: float | None = None,
        num_features: int | None = None,
        features: str = "orthogonal",
        normalize: bool = False,
        seed: int = 0,
        origin: Distributions | Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        distance = MMD(
            dim,
            inputs=inputs,
            kernel=kernel,
            atoms=atoms,
            bandwidth=bandwidth,
            num_features=num_features,
            features=features,
            normalize=normalize,
            seed=seed,
        )
        super().__init__(distance, profile, origin=origin, **kwargs)


class SinkhornKernel(DistributionKernel):
    """Kernel of a :class:`SinkhornPotential` distance.

    Arguments that are not described below are passed on to :class:`SinkhornPotential`.

    Args:
        profile: Profile, or the name of one; see :class:`DistributionKernel`.
        origin: Origin of inner products; see :class:`DistributionKernel`.
        **kwargs: GPyTorch options; see :class:`DistributionKernel`.

    Raises:
        TypeError: If ``reference`` is not a :class:`ReferenceMeasure`.
        ValueError: If the distance or the kernel rejects an argument.

    Example:
        >>> import torch
        >>> from gp_distributions import PointClouds, ReferenceMeasure, SinkhornKernel
        >>> reference = ReferenceMeasure(torch.tensor([[0.0], [1.0], [2.0]]).double())
        >>> kernel = SinkhornKernel(reference, epsilon=0.5)
        >>> rows = PointClouds.from_list([[[0.0], [2.0]], [[1.0]]]).pack()
        >>> kernel(rows).to_dense().shape
        torch.Size([2, 2])

    Sources: Bachoc et al. 2023; Allain, Gousset and Heurtin 2024, theorem 4.
    """

    def __init__(
        self,
        reference: ReferenceMeasure,
        *,
        profile: str | Profile = "matern52",
        epsilon: float | None = None,
        origin: Distributions | Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        distance = SinkhornPotential(reference, epsilon=epsilon)
        super().__init__(distance, profile, origin=origin, **kwargs)
