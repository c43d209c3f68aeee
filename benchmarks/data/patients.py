"""Random patients: a bag of cells each, beside age, sex and treatment."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gp_distributions import MixedInputs, PointClouds

# Standard deviations over patients of the mean of a marker and of the logarithm of its spread.
_MEAN, _LOG_SPREAD = 1.0, 0.4


@dataclass(frozen=True)
class Patients:
    """Patients whose response depends on three markers of their cells, their age and their arm.

    Attributes:
        cells: The cells of ``N`` patients, as clouds whose labels name the patients.
        covariates: The columns ``age`` in years, ``sex`` and ``arm``, by name.
        response: The ``N`` responses.
        signal: The ``N`` responses without noise.
    """

    cells: PointClouds
    covariates: dict[str, NDArray[Any]]
    response: NDArray[np.float64]
    signal: NDArray[np.float64]

    @property
    def inputs(self) -> MixedInputs:
        """The cells and the covariates as mixed inputs."""
        return MixedInputs(cells=self.cells, covariates=self.covariates)


def random_patients(
    num: int,
    *,
    dim: int = 12,
    sizes: tuple[int, int] = (200, 3000),
    cells: float = 1.0,
    covariates: float = 1.0,
    interaction: float = 0.0,
    noise: float = 0.3,
    seed: int = 0,
) -> Patients:
    r"""Draw patients whose markers are normal within a patient and differ between patients.

    Let :math:`m_j` and :math:`s_j` be the mean and the spread of marker :math:`j` of a patient, and
    :math:`t` the age in units of its standard deviation. With effects of unit variance, the response is

    .. math::
        y = c\, u(m_1, m_2, s_3) + v\, w(t, \text{arm}) + i\, m_1 a(\text{arm}) + \varepsilon,

    where :math:`u` is linear in :math:`m_1`, :math:`m_2` and :math:`\log s_3`, :math:`w` adds a curved
    effect of age and one of the arm, and :math:`a` is -1, 0 or 1. The other markers and the sex carry
    nothing.

    Args:
        num: Number ``N`` of patients.
        dim: Number of markers, at least 3.
        sizes: Smallest and largest number of cells; sizes are uniform on a logarithmic scale.
        cells: Standard deviation :math:`c` of the effect of the cells.
        covariates: Standard deviation :math:`v` of the effect of age and arm.
        interaction: Standard deviation :math:`i` of the interaction of the first marker and the arm.
        noise: Standard deviation of the noise.
        seed: Random seed.

    Returns:
        The patients.
    """
    rng = np.random.default_rng(seed)
    means = _MEAN * rng.standard_normal((num, dim))
    low, high = map(math.log, sizes)
    logs = _LOG_SPREAD * rng.standard_normal((num, dim))
    counts = np.exp(rng.uniform(low, high, num)).round().astype(int)
    age = rng.uniform(20.0, 80.0, num)
    sex = rng.choice(["female", "male"], num)
    arms = rng.integers(3, size=num)
    years = (age - 50.0) / math.sqrt(300.0)
    of_cells = (means[:, 0] - means[:, 1] + logs[:, 2] / _LOG_SPREAD) / math.sqrt(3.0)
    curved = (np.sin(1.5 * years) + years) / 1.65
    of_arm = (arms - 1) / math.sqrt(2 / 3)
    signal = cells * of_cells + covariates * (curved + of_arm) / math.sqrt(2.0)
    signal = signal + interaction * means[:, 0] * of_arm
    bags = {
        f"patient {i}": mean + np.exp(log) * rng.standard_normal((count, dim))
        for i, (mean, log, count) in enumerate(zip(means, logs, counts, strict=True))
    }
    return Patients(
        PointClouds.from_list(bags),
        {"age": age, "sex": sex, "arm": np.array(["placebo", "low dose", "high dose"])[arms]},
        signal + noise * rng.standard_normal(num),
        signal,
    )
