"""Two functions of recipes of at most 5 of 25 ingredients, which have 8 properties."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MOST = 5
_RNG = np.random.default_rng(2042)
#: A row of 8 properties for each of 25 ingredients.
PROPERTIES: Floats = _RNG.normal(size=(25, 8))
#: What single ingredients do that their properties do not explain: nothing, for 17 of 25.
EFFECTS: Floats = np.where(_RNG.permutation(25) < 8, _RNG.normal(scale=1.5, size=25), 0.0)


def of_properties(fractions: Floats) -> Floats:
    """Return a function of the distribution of properties in recipes, ``N x 25``.

    Properties 0 and 1 have a target, 2 and 3 interact, the spread of 4 and the level of 6 help, 5 mixes
    in exponentials, and 7 does nothing.
    """
    mean = fractions @ PROPERTIES
    spread = np.sqrt(np.maximum(fractions @ PROPERTIES**2 - mean**2, 0))
    mixed = np.log(fractions @ np.exp(PROPERTIES[:, 5]))
    target = np.exp(-((mean[:, 0] - 0.6) ** 2 + (mean[:, 1] + 0.5) ** 2) / 0.6)
    interaction = 1.5 * mean[:, 2] * mean[:, 3]
    level = np.tanh(2 * mean[:, 6]) + 0.8 * spread[:, 4]
    return 2 * target + interaction + level - (mixed - 0.5) ** 2


def with_effects(fractions: Floats) -> Floats:
    """Return the same with effects of single ingredients, each half as large at a tenth as at most."""
    return of_properties(fractions) + (fractions / (fractions + 0.1)) @ EFFECTS
