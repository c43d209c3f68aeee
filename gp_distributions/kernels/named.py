"""The named kernels: each a distance with a profile."""

from __future__ import annotations

from typing import Any

from gp_distributions.distances.mmd import MMD
from gp_distributions.distances.sliced_wasserstein import SlicedWasserstein
from gp_distributions.distances.transport import SinkhornPotential
from gp_distributions.kernels.distribution_kernel import DistributionKernel
from gp_distributions.kernels.profiles import Profile
from gp_distributions.measures.reference import ReferenceMeasure


class SlicedWassersteinKernel(DistributionKernel):
    """The kernel of a :class:`SlicedWasserstein` distance.

    Args:
        dim: The dimension ``d`` of the atoms.
        inputs: ``"clouds"`` or ``"gaussians"``.
        profile: A profile or its name, see :class:`DistributionKernel`.
        p: The order, 1 or 2.
        num_slices: The number of directions.
        num_quantiles: The number of cells over which quantile functions are averaged, or ``None``.
        center: Whether clouds are centred at their means first.
        seed: Of the directions in three and more dimensions.
        **kwargs: Options of a GPyTorch kernel.

    Raises:
        ValueError: As :class:`SlicedWasserstein` and :class:`DistributionKernel` do.

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
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        distance = SlicedWasserstein(
            dim,
            inputs=inputs,
            p=p,
            num_slices=num_slices,
            num_quantiles=num_quantiles,
            center=center,
            seed=seed,
        )
        super().__init__(distance, profile, **kwargs)


class MMDKernel(DistributionKernel):
    """The kernel of an :class:`MMD` distance.

    With a kernel ``k`` on the atoms these are the level-2 kernels on mean embeddings: the set kernel
    with ``profile="linear"``, and functions of the distance with the others.

    Args:
        dim: The dimension ``d`` of the atoms.
        inputs: ``"clouds"``, ``"gaussians"`` or ``"mixtures"``.
        profile: A profile or its name, see :class:`DistributionKernel`.
        kernel: The name of the embedding kernel on the atoms, see :class:`MMD`.
        bandwidth: Its bandwidth, in the units of the points. Default: the median distance of atoms of
            the first rows seen, then stored.
        num_features: The number of features of an approximation. Default: exact.
        features: ``"orthogonal"`` or ``"quasi_random"`` Fourier features, or ``"landmarks"``.
        normalize: Whether mean embeddings are brought to unit length.
        seed: Of the features and of the atoms drawn.
        **kwargs: Options of a GPyTorch kernel.

    Raises:
        ValueError: As :class:`MMD` and :class:`DistributionKernel` do.

    Source: Szabo et al. 2015, table 1; Muandet et al. 2012.
    """

    def __init__(
        self,
        dim: int,
        *,
        inputs: str = "clouds",
        profile: str | Profile = "matern52",
        kernel: str = "gaussian",
        bandwidth: float | None = None,
        num_features: int | None = None,
        features: str = "orthogonal",
        normalize: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        distance = MMD(
            dim,
            inputs=inputs,
            kernel=kernel,
            bandwidth=bandwidth,
            num_features=num_features,
            features=features,
            normalize=normalize,
            seed=seed,
        )
        super().__init__(distance, profile, **kwargs)


class SinkhornKernel(DistributionKernel):
    """The kernel of a :class:`SinkhornPotential` distance.

    Args:
        reference: The reference measure; learnable.
        profile: A profile or its name, see :class:`DistributionKernel`.
        epsilon: The regularisation, in squared units of the points. Default: 0.05 times the mean
            squared distance between two atoms of the reference, fixed at construction.
        **kwargs: Options of a GPyTorch kernel.

    Raises:
        TypeError: As :class:`SinkhornPotential` does.
        ValueError: As :class:`SinkhornPotential` and :class:`DistributionKernel` do.

    Source: Bachoc et al. 2023; Allain et al. 2024.
    """

    def __init__(
        self,
        reference: ReferenceMeasure,
        *,
        profile: str | Profile = "matern52",
        epsilon: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(SinkhornPotential(reference, epsilon=epsilon), profile, **kwargs)
