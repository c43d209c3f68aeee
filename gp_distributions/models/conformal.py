"""Conformal corrections: predicted standard deviations scaled until intervals hold held-out targets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gp_distributions.measures.arrays import positive, real_array, to_tensors
from gp_distributions.numerics.predictions import Values, standardized_errors

# Roundings between a score and the bound of the interval that just contains its target.
_ROUNDINGS = 8


class ConformalCorrection:
    r"""Factor for predicted standard deviations, from the errors of predictions of held-out clouds.

    With targets :math:`y_i` of ``n`` clouds, predicted means :math:`m_i` and standard deviations
    :math:`s_i`, and the quantile :math:`z = \Phi^{-1}((1 + \text{level}) / 2)`, the factor is

    .. math::
        \frac{r_{(k)}}{z}, \qquad r_i = \frac{|y_i - m_i|}{s_i}, \qquad
        k = \lceil (n + 1)\, \text{level} \rceil,

    with :math:`r_{(k)}` the ``k``-th smallest score. The interval of a new cloud is then
    :math:`m \pm r_{(k)} s`. If the model has seen none of the ``n`` clouds, and these and the new cloud
    are exchangeable, for example drawn independently from one population, then this interval contains
    the new target :math:`y` with a probability

    .. math::
        \text{level} \le P\bigl(|y - m| \le r_{(k)} s\bigr) \le \text{level} + \frac{1}{n + 1},

    whatever the distribution of the targets and however wrong the model is; the upper bound holds if no
    two scores are equal. The probability is an average over held-out and new clouds. It need not hold
    for each kind of cloud separately, for intervals of other levels, or for clouds from another
    population.

    Leave-one-out predictions, ``ConformalCorrection(y, *model.leave_one_out())``, need no held-out
    clouds but carry no such guarantee, because the hyperparameters have seen all targets and new clouds
    are predicted from one more cloud. Nor do predictions in folds.

    Args:
        y: The targets of the held-out clouds, ``n`` or ``n x outputs``.
        mean: Their predicted means.
        std: Their predicted standard deviations of observations.
        level: Probability of the intervals.

    Attributes:
        scores: The scores :math:`r_{(1)} \le \dots \le r_{(n)}`, ``n`` or ``n x outputs``; each output
            has its own order.
        level: Probability of the intervals.

    Raises:
        ValueError: If shapes differ; a value is not finite or a standard deviation is not positive; the
            level is not between 0 and 1; or there are fewer held-out clouds than level / (1 - level),
            which is 19 for 95%: then only infinite intervals have the guarantee.

    Example:
        >>> import torch
        >>> from gp_distributions import DistributionGP, PointClouds, fit
        >>> from gp_distributions.models import ConformalCorrection
        >>> points = torch.randn(60, 20, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> clouds, targets = PointClouds(points), points.mean((-2, -1))
        >>> model = fit(DistributionGP(clouds[:9], targets[:9]), restarts=0)
        >>> correction = ConformalCorrection(targets[9:50], *model.predict(clouds[9:50]))
        >>> mean, std = model.predict(clouds[50:])
        >>> wider = correction.rescale(std)  # 95% intervals are mean ± 1.96 * wider
        >>> bool(torch.allclose(wider, correction.factor * std))
        True

    Source: Lei, G'Sell, Rinaldo, Tibshirani and Wasserman 2018, Theorem 2.2 and section 5.2.
    """

    def __init__(self, y: Values, mean: Values, std: Values, *, level: float = 0.95) -> None:
        level = positive(level, "level")
        if level >= 1:
            raise ValueError(f"Expected a level between 0 and 1, got {level}.")
        errors, _ = standardized_errors(y, mean, std, outputs=True)
        self.level = level
        self.scores = errors.abs().sort(dim=0).values
        needed = math.ceil(level / (1 - level) - 1e-9)
        if self._rank > len(errors):
            raise ValueError(
                f"Expected at least {needed} held-out clouds for intervals of level {level:g}, got "
                f"{len(errors)}. Hold out more clouds, or choose a lower level."
            )

    @property
    def factor(self) -> Tensor:
        """The factor, a scalar tensor, or a tensor with one for each of the outputs."""
        level = torch.tensor(self.level, dtype=torch.float64)
        return self.scores[self._rank - 1] / torch.special.ndtri((1 + level) / 2).item()

    @property
    def _rank(self) -> int:
        # 20 * 0.95 and the like may be an integer only up to rounding.
        return math.ceil((len(self.scores) + 1) * (self.level - 1e-12))

    def rescale(self, std: Values) -> Tensor:
        """Multiply standard deviations by the factor, rounded up so that intervals stay closed.

        Args:
            std: Standard deviations of observations, ``... x N``, or ``... x N x outputs`` if held-out
                targets have an axis of outputs, as a tensor or an array.

        Returns:
            A tensor of the shape of ``std``.

        Raises:
            ValueError: If the number of outputs differs, or ``std`` are not numbers.

        Example:
            >>> import torch
            >>> from gp_distributions.models import ConformalCorrection
            >>> correction = ConformalCorrection([1.0, 2.0, 3.0], [0.0] * 3, [1.0] * 3, level=0.5)
            >>> correction.rescale(torch.ones(2))
            tensor([2.9652, 2.9652])
        """
        if not isinstance(std, Tensor):
            (std,) = to_tensors([real_array(std, "std")])
        factor = self.factor.squeeze()  # one output needs no axis
        if factor.dim() and std.shape[-1:] != factor.shape:
            raise ValueError(
                f"Expected standard deviations of {len(factor)} outputs in the last axis, like those of "
                f"the held-out clouds, got shape {tuple(std.shape)}."
            )
        up = 1 + _ROUNDINGS * torch.finfo(std.dtype).eps
        return std * (up * factor).to(std)

    def __repr__(self) -> str:
        factors = ", ".join(f"{factor:.3g}" for factor in self.factor.flatten().tolist())
        return f"ConformalCorrection(level={self.level:g}, clouds={len(self.scores)}, factor={factors})"
