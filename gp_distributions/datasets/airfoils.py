"""Airfoils: outlines of wing sections with their lift-to-drag ratios."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from tqdm import tqdm

_MIN_SEPARATION = 0.01  # root mean square over the 18 Kulfan parameters


@dataclass(frozen=True, eq=False)
class Airfoils:
    """Outlines of airfoils and their lift-to-drag ratios.

    Args:
        names: Names of the ``N`` airfoils.
        outlines: For each airfoil, an ``n_i x 2`` array of points in chords, which run from the
            trailing edge over the upper surface to the leading edge at the origin, and back along the
            lower surface.
        lift_to_drag: The ``N`` dimensionless ratios of the lift to the drag coefficient.

    Example:
        >>> import numpy as np
        >>> from gp_distributions.datasets import Airfoils
        >>> wedge = np.array([[1.0, 0.0], [0.5, 0.1], [0.0, 0.0], [0.5, -0.1]])
        >>> airfoils = Airfoils(("thick", "thin"), (wedge, wedge * [1.0, 0.5]), np.array([20.0, 35.0]))
        >>> airfoils.names[airfoils.lift_to_drag.argmax()]
        'thin'
    """

    names: tuple[str, ...]
    outlines: tuple[NDArray[np.float64], ...]
    lift_to_drag: NDArray[np.float64]

    def split(self, num_train: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Split the airfoils at random.

        Args:
            num_train: Number of airfoils to train on.
            seed: Random seed.

        Returns:
            The indices of the ``num_train`` training airfoils, and the indices of all other airfoils.

        Raises:
            ValueError: If ``num_train`` is not between 1 and ``N - 1``.

        Example:
            >>> import numpy as np
            >>> from gp_distributions.datasets import Airfoils
            >>> airfoils = Airfoils(("a", "b", "c"), (np.eye(2),) * 3, np.ones(3))
            >>> train, test = airfoils.split(2, seed=0)
            >>> len(train), len(test)
            (2, 1)
        """
        total = len(self.names)
        if not 0 < num_train < total:
            raise ValueError(f"Expected num_train between 1 and {total - 1}, got {num_train}.")
        order = np.random.default_rng(seed).permutation(total)
        return order[:num_train], order[num_train:]


def load_airfoils(*, progress: bool = False) -> Airfoils:
    """Load the 1874 airfoils in AeroSandbox's database for which NeuralFoil is confident.

    The target is CL/CD at an angle of attack of 4 degrees and a Reynolds number of 1e6, computed by
    NeuralFoil's model ``"xlarge"``. AeroSandbox first normalises every outline: it moves the leading
    edge to the origin and the middle of the trailing edge to (1, 0). The angle of attack refers to
    the normalised outline. Each outline keeps all points of its file, between 27 and 496.

    The database has 2174 files. An airfoil is dropped if its analysis confidence is below 0.9, its CD is
    outside [0.004, 0.03], the root mean square error of its Kulfan (CST) fit over the points of the file
    exceeds 0.002 chords, or its thickness exceeds 0.3 chords; 2027 remain. In alphabetical order, an
    airfoil is then dropped as a near-duplicate if the 18 Kulfan parameters that NeuralFoil uses
    differ from those of an airfoil already kept by less than 0.01 in root mean square, which leaves
    1874. The best ratio is 192.3, and the 19 airfoils in the top percent have at least 165.5. These
    numbers were obtained with AeroSandbox 4.2.10 and NeuralFoil 0.3.3.

    Args:
        progress: Whether to show a progress bar over the files.

    Returns:
        The airfoils, in the order of their names.

    Raises:
        ImportError: If NeuralFoil is not installed.

    Example:
        >>> from gp_distributions import PointClouds
        >>> from gp_distributions.datasets import load_airfoils
        >>> airfoils = load_airfoils()  # doctest: +SKIP
        >>> clouds = PointClouds.from_curves(airfoils.outlines)  # doctest: +SKIP

    Source: UIUC Airfoil Coordinates Database, through AeroSandbox; Sharpe and Hansman 2025
    (NeuralFoil, arXiv:2503.16323); Kulfan 2008.
    """
    return airfoils_with_parameters(progress=progress)[0]


def airfoils_with_parameters(*, progress: bool = False) -> tuple[Airfoils, NDArray[np.float64]]:
    """Load the airfoils of :func:`load_airfoils` with their Kulfan parameters.

    Args:
        progress: Whether to show a progress bar over the files.

    Returns:
        The airfoils, and an ``N x 18`` array: 8 upper and 8 lower weights, the weight of the leading
        edge and the thickness of the trailing edge in chords.

    Raises:
        ImportError: If NeuralFoil is not installed.
    """
    try:
        import aerosandbox
        import neuralfoil
    except ImportError as error:
        raise ImportError(
            "Airfoils need the extra 'airfoils'. Run in the root of the repository: "
            'pip install -c constraints.txt ".[airfoils]"'
        ) from error

    folder = Path(aerosandbox.__file__).parent / "geometry" / "airfoil" / "airfoil_database"
    paths = sorted(folder.glob("*.dat"), key=lambda path: path.stem)
    airfoils = [
        aerosandbox.Airfoil(path.stem, coordinates=path).normalize()
        for path in tqdm(paths, desc="Airfoils", disable=not progress)
    ]
    fits = [airfoil.to_kulfan_airfoil(normalize_coordinates=False) for airfoil in airfoils]
    parameters = {
        key: np.stack([fit.kulfan_parameters[key] for fit in fits], axis=-1)
        for key in ("upper_weights", "lower_weights", "leading_edge_weight", "TE_thickness")
    }
    flow = neuralfoil.get_aero_from_kulfan_parameters(
        parameters, alpha=4.0, Re=1e6, model_size="xlarge"
    )

    lift, drag = np.asarray(flow["CL"]), np.asarray(flow["CD"])
    fit_error = np.array([_fit_error(*pair) for pair in zip(airfoils, fits, strict=True)])
    thickness = np.array([airfoil.max_thickness() for airfoil in airfoils])
    sound = (
        (np.asarray(flow["analysis_confidence"]) >= 0.9)
        & (drag >= 0.004)
        & (drag <= 0.03)
        & (fit_error <= 0.002)  # chords
        & (thickness <= 0.3)  # chords
    )
    candidates = np.flatnonzero(sound)
    columns = np.vstack(list(parameters.values())).T
    kept = candidates[_distinct(columns[candidates])]
    found = Airfoils(
        names=tuple(airfoils[i].name for i in kept),
        outlines=tuple(airfoils[i].coordinates for i in kept),
        lift_to_drag=lift[kept] / drag[kept],
    )
    return found, columns[kept]


def _fit_error(airfoil: Any, fit: Any) -> float:
    """Compute the root mean square distance between an outline and its fit, along y and in chords."""
    upper, lower = airfoil.upper_coordinates(), airfoil.lower_coordinates()[1:]
    fitted = np.concatenate(
        [
            # A blunt trailing edge can reach beyond x = 1, where the fit is not defined.
            fit.upper_coordinates(np.clip(upper[:, 0], 0.0, 1.0)),
            fit.lower_coordinates(np.clip(lower[:, 0], 0.0, 1.0)),
        ]
    )
    residuals = fitted[:, 1] - np.concatenate([upper, lower])[:, 1]
    return float(np.sqrt(np.mean(residuals**2)))


def _distinct(parameters: NDArray[np.float64]) -> list[int]:
    """Return the indices of the rows kept: those that are not near-duplicates of a row kept before."""
    separation = scipy.spatial.distance.cdist(parameters, parameters) / np.sqrt(parameters.shape[1])
    kept: list[int] = []
    for row in range(len(parameters)):
        if np.all(separation[row, kept] >= _MIN_SEPARATION):
            kept.append(row)
    return kept
