"""Airfoils: outlines of wing sections, each with its lift-to-drag ratio."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from tqdm import tqdm

_ANGLE_OF_ATTACK = 4.0  # degrees
_REYNOLDS_NUMBER = 1e6
_MODEL_SIZE = "xlarge"  # of NeuralFoil, its default

_MIN_CONFIDENCE = 0.9
_MIN_DRAG, _MAX_DRAG = 0.004, 0.03
_MAX_FIT_ERROR = 0.002  # chords
_MAX_THICKNESS = 0.3  # chords
_MIN_SEPARATION = 0.01  # root mean square over the 18 Kulfan parameters


@dataclass(frozen=True, eq=False)
class Airfoils:
    """Outlines of airfoils and their lift-to-drag ratios.

    Args:
        names: The ``N`` names of the airfoils.
        outlines: For each airfoil an ``n_i x 2`` array of points in chords, from the trailing edge
            over the upper surface to the leading edge at the origin and back below.
        lift_to_drag: The ``N`` ratios of the lift to the drag coefficient, dimensionless.
    """

    names: tuple[str, ...]
    outlines: tuple[NDArray[np.float64], ...]
    lift_to_drag: NDArray[np.float64]

    def split(self, num_train: int, *, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Split the airfoils at random.

        Args:
            num_train: The number of airfoils to train on.
            seed: Of the permutation.

        Returns:
            The indices to train on, ``num_train`` of them, and those of all other airfoils.

        Raises:
            ValueError: If ``num_train`` is not between 1 and ``N - 1``.
        """
        total = len(self.names)
        if not 0 < num_train < total:
            raise ValueError(f"Expected num_train between 1 and {total - 1}, got {num_train}.")
        order = np.random.default_rng(seed).permutation(total)
        return order[:num_train], order[num_train:]


def load_airfoils(*, progress: bool = False) -> Airfoils:
    """Load the 1874 airfoils of AeroSandbox's database that NeuralFoil is confident about.

    The target is CL/CD at an angle of attack of 4 degrees and a Reynolds number of 1e6, by
    NeuralFoil's model ``"xlarge"``. AeroSandbox normalises every outline first: the leading edge
    comes to the origin and the middle of the trailing edge to (1, 0), to which the angle of attack
    then refers. The points stay those of the file, 27 to 496 of them.

    Of the 2174 files, a file is dropped if its analysis confidence is below 0.9, its CD outside
    [0.004, 0.03], the root mean square error of its Kulfan (CST) fit over its own points above 0.002
    chords, or its thickness above 0.3 chords. 2027 remain. Of these, in the order of their names, an
    airfoil is dropped as a near-duplicate if the 18 Kulfan parameters on which NeuralFoil bases its
    answer differ from those of one already kept by less than 0.01, in root mean square. 1874 remain,
    the best at 192.3 and the best hundredth, 19 airfoils, at 165.5 and above. The counts are those of
    AeroSandbox 4.2.10 and NeuralFoil 0.3.3.

    Args:
        progress: Whether to show a progress bar over the files.

    Returns:
        The airfoils, in the order of their names.

    Raises:
        ImportError: If NeuralFoil is not installed.

    Source: UIUC Airfoil Coordinates Database, through AeroSandbox; Sharpe and Hansman 2025
    (NeuralFoil, arXiv:2503.16323); Kulfan 2008.
    """
    try:
        import aerosandbox
        import neuralfoil
    except ImportError as error:
        raise ImportError(
            "load_airfoils needs the extra 'airfoils', in the folder of the repository: "
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
        parameters, alpha=_ANGLE_OF_ATTACK, Re=_REYNOLDS_NUMBER, model_size=_MODEL_SIZE
    )

    lift, drag = np.asarray(flow["CL"]), np.asarray(flow["CD"])
    fit_error = np.array([_fit_error(*pair) for pair in zip(airfoils, fits, strict=True)])
    thickness = np.array([airfoil.max_thickness() for airfoil in airfoils])
    sound = (
        (np.asarray(flow["analysis_confidence"]) >= _MIN_CONFIDENCE)
        & (drag >= _MIN_DRAG)
        & (drag <= _MAX_DRAG)
        & (fit_error <= _MAX_FIT_ERROR)
        & (thickness <= _MAX_THICKNESS)
    )
    candidates = np.flatnonzero(sound)
    kept = candidates[_distinct(np.vstack(list(parameters.values())).T[candidates])]
    return Airfoils(
        names=tuple(airfoils[i].name for i in kept),
        outlines=tuple(airfoils[i].coordinates for i in kept),
        lift_to_drag=lift[kept] / drag[kept],
    )


def _fit_error(airfoil: Any, fit: Any) -> float:
    """The root mean square distance of an outline from its fit, along y and in chords."""
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
    """The rows that are not near-duplicates of an earlier row among them."""
    separation = cdist(parameters, parameters) / np.sqrt(parameters.shape[1])
    kept: list[int] = []
    for row in range(len(parameters)):
        if np.all(separation[row, kept] >= _MIN_SEPARATION):
            kept.append(row)
    return kept
