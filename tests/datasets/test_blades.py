import numpy as np
import pytest

from gp_distributions.datasets import Blades, propeller_blades, random_blades
from gp_distributions.datasets.blades import Mesh


@pytest.fixture(scope="module")
def blades() -> Blades:
    pytest.importorskip("neuralfoil")
    return random_blades(5)


def volume(mesh: Mesh) -> float:
    corners = mesh[0][mesh[1]]
    return float(np.linalg.det(corners).sum() / 6)


def test_performance_obeys_momentum_theory(blades: Blades) -> None:
    # The disc of radius 1 sees the speed J / pi of a propeller that turns at unit angular speed.
    loading = blades.thrust * 4 / np.pi**2 / (0.5 * (0.8 / np.pi) ** 2 * np.pi)
    assert np.all(blades.thrust > 0)
    assert np.all(blades.efficiency > 0.3)
    assert np.all(blades.efficiency < 2 / (1 + np.sqrt(1 + loading)))


def test_meshes_are_closed_and_face_outward(blades: Blades) -> None:
    for vertices, faces in blades.meshes:
        edges = {
            (a, b) for face in faces.tolist() for a, b in zip(face, np.roll(face, -1), strict=True)
        }
        assert len(edges) == 3 * len(faces)
        assert {(b, a) for a, b in edges} == edges
        assert set(faces.flat) == set(range(len(vertices)))
        assert volume((vertices, faces)) > 0
        assert vertices[:, 2].min() == pytest.approx(0.2)
        assert vertices[:, 2].max() == pytest.approx(0.98)


def test_designs_depend_on_the_seed_and_not_on_their_number(blades: Blades) -> None:
    again, other = random_blades(2), random_blades(2, seed=1)
    np.testing.assert_array_equal(again.efficiency, blades.efficiency[:2])
    np.testing.assert_array_equal(again.meshes[1][0], blades.meshes[1][0])
    assert not np.allclose(other.parameters, again.parameters)


def test_meshings_differ_in_vertices_only(blades: Blades) -> None:
    other = random_blades(5, meshing_seed=1)
    np.testing.assert_array_equal(other.thrust, blades.thrust)
    for mesh, same in zip(blades.meshes, other.meshes, strict=True):
        assert len(mesh[0]) != len(same[0])
        assert volume(same) == pytest.approx(volume(mesh), rel=0.1)


def test_blades_of_given_parameters(blades: Blades) -> None:
    again = propeller_blades(blades.parameters[:2])
    np.testing.assert_allclose(again.thrust, blades.thrust[:2], rtol=1e-12)
    np.testing.assert_allclose(again.efficiency, blades.efficiency[:2], rtol=1e-12)
    np.testing.assert_array_equal(again.meshes[1][0], blades.meshes[1][0])
    stalled = blades.parameters[:1].copy()
    stalled[:, 39:41] = 1.5
    assert np.isnan(propeller_blades(stalled).thrust).all()
    with pytest.raises(ValueError, match=r"N x 42 array of parameters, got shape \(42,\)"):
        propeller_blades(blades.parameters[0])
