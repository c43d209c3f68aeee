r"""Grids of Meunier, Pontil and Ciliberto 2022, all logarithmic: those printed, and those of the code.

Appendix F prints one set of grids for both experiments: 25 :math:`\lambda` from 1e-8 to "100"; 7
:math:`\gamma` of MMD from 1e-3 to "100", and 14 :math:`\gamma'` of its embedding kernel from 1e-6 to
"100"; 14 :math:`\gamma` of sliced Wasserstein distances from 1e-5 to "100". In the text at hand
superscripts are lost: "100" is :math:`10^0` or one hundred. The authors' code of the experiment on modes
(github.com/DimSum2k/DRSWK) has other ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grids:
    r"""Candidates of a search.

    Attributes:
        ridges: :math:`\lambda`.
        inner: :math:`\gamma'`, of the embedding kernel.
        outer: :math:`\gamma` of MMD.
        sliced: :math:`\gamma` of sliced Wasserstein distances.
    """

    ridges: Tensor
    inner: Tensor
    outer: Tensor
    sliced: Tensor


def logarithmic(low: float, high: float, count: int) -> Tensor:
    """Return powers of ten between those of ``low`` and ``high``."""
    return torch.logspace(low, high, count, dtype=torch.float64)


# Appendix F, with "100" read as ten to the power of zero or of two.
PRINTED = {
    name: Grids(
        ridges=logarithmic(-8, top, 25),
        inner=logarithmic(-6, top, 14),
        outer=logarithmic(-3, top, 7),
        sliced=logarithmic(-5, top, 14),
    )
    for name, top in (("one", 0), ("hundred", 2))
}
CODE = Grids(
    ridges=logarithmic(-5, 2, 25),
    inner=logarithmic(-6, 3, 14),
    outer=logarithmic(-3, 3, 7),
    sliced=logarithmic(-5, 4, 14),
)
