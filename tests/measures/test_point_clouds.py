"""The container: validation, rows, indices, resampling, normalisation, immutability."""

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gp_distributions.measures import Gaussians, MixedInputs, PointClouds, ReferenceMeasure
from gp_distributions.warnings import DistributionWarning, PrecisionWarning

few = settings(deadline=None, max_examples=30)


def ragged(count=6, dim=2, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, count)
    sizes[:2] = 3, 7
    bags = [rng.normal(size=(n, dim)) for n in sizes]
    return bags, [rng.random(n) + 0.01 for n in sizes]


@st.composite
def clouds(draw):
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=4, max_side=5))
    points = draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e3, 1e3)))
    weights = draw(hnp.arrays(np.float64, shape[:-1], elements=st.sampled_from([0, 0.1, 1, 7])))
    weights[..., draw(st.integers(0, shape[-2] - 1))] += 0.3
    return PointClouds(points, weights)


def test_a_single_cloud_has_no_length_and_is_not_iterable():
    single = PointClouds(np.zeros((5, 2)))
    with pytest.raises(TypeError, match="single cloud"):
        len(single)
    with pytest.raises(TypeError, match="single cloud"):
        list(single)


def test_repr():
    batch = PointClouds(np.zeros((3, 200, 2, 1)))
    assert repr(batch) == "PointClouds(3 x 200 clouds, 2 atoms, d=1, float64)"
    assert repr(batch[[]]) == "PointClouds(3 x 0 clouds, no atoms, d=1, float64)"


# Validation


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_coordinates_that_are_not_finite_name_the_bag(value):
    points = np.zeros((4, 5, 2))
    points[2, 3, 1] = value
    message = rf"Bag 2: expected finite coordinates, got {value} in atom 3, coordinate 1\."
    with pytest.raises(ValueError, match=message):
        PointClouds(points)
    with pytest.raises(ValueError, match=r"The bag: expected finite"):
        PointClouds(points[2])
    with pytest.raises(ValueError, match=r"Bag \(1, 2\): expected finite"):
        PointClouds(np.stack([np.zeros_like(points), points]))
    with pytest.raises(ValueError, match=message):
        PointClouds.from_list(list(points))


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.5])
def test_bad_weights_name_the_bag(value):
    weights = np.ones((4, 5))
    weights[2, 3] = value
    message = rf"Bag 2: expected finite weights >= 0, got {value} in atom 3\."
    with pytest.raises(ValueError, match=message):
        PointClouds(np.zeros((4, 5, 2)), weights)
    with pytest.raises(ValueError, match=message):
        PointClouds.from_list(np.zeros((4, 5, 2)), weights)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.zeros(3), r"shape \(3,\); write n numbers as an array of shape \(n, 1\)"),
        (np.zeros((0, 2, 2)), r"non-empty array .*, got shape \(0, 2, 2\)"),
        (np.array([[1.0, None]]), r"Points: expected real numbers, got None at \(0, 1\)"),
        (
            torch.zeros(3, 2, dtype=torch.complex64),
            r"Points: expected real numbers, got torch\.complex64",
        ),
        (np.ma.masked_less(np.zeros((3, 2)), 1), r"Points: .* masked array"),
        ([np.zeros((3, 2)), np.zeros((4, 2))], r"unequal lengths; .* PointClouds\.from_list"),
        ([torch.zeros(3, 2), torch.zeros(4, 2)], r"unequal lengths; .* PointClouds\.from_list"),
    ],
)
def test_values_that_are_not_arrays_of_points_are_refused(points, message):
    with pytest.raises(ValueError, match=message):
        PointClouds(points)


@pytest.mark.parametrize(
    "sparse", [lambda: torch.eye(3).to_sparse(), lambda: scipy.sparse.eye_array(3)]
)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (PointClouds, "Points"),
        (lambda x: PointClouds(np.zeros((3, 1)), x), "Weights"),
        (lambda x: PointClouds.from_list([np.eye(3), x]), "Bag 1"),
        (lambda x: PointClouds.from_list([np.eye(3)], [x]), "Weights of bag 0"),
        (PointClouds.from_images, "Images"),
        (lambda x: PointClouds.from_curves([np.eye(3), x]), "Curve 1"),
        (lambda x: PointClouds.from_meshes([(np.eye(3), x)]), "Faces of mesh 0"),
        (lambda x: Gaussians(np.zeros(3), x), "Covariance"),
        (ReferenceMeasure, "Points"),
    ],
)
def test_sparse_data_are_refused_with_a_remedy(make, name, sparse):
    with pytest.raises(ValueError, match=rf"{name}: expected a dense array, .*to_dense\(\)"):
        make(sparse())


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"Weights: expected shape \(4, 5\), .* got \(4, 6\)"):
        PointClouds(np.zeros((4, 5, 2)), np.ones((4, 6)))
    with pytest.raises(ValueError, match=r"Weights: expected real numbers"):
        PointClouds(np.zeros((1, 2)), ["a"])


@pytest.mark.parametrize(
    "dtype", [np.int64, np.uint8, bool, np.float16, ">f8", np.longdouble, torch.bfloat16, torch.int]
)
def test_other_real_dtypes_become_double(dtype):
    values = torch.ones(3, 2, 1, dtype=dtype) if isinstance(dtype, torch.dtype) else None
    values = np.ones((3, 2, 1), dtype) if values is None else values
    for made in (PointClouds(values), PointClouds.from_list(list(values))):
        assert made.dtype == made.weights.dtype == torch.float64
        assert made.points.unique().tolist() == [1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: PointClouds(np.zeros((3, 2), np.float32)),
        lambda: PointClouds.from_list([np.zeros((3, 2), np.float32), torch.zeros(1, 2)]),
        lambda: PointClouds.from_images(torch.ones(3, 2, 2)),
        lambda: PointClouds.from_meshes([(torch.eye(3), [[0, 1, 2]])]),
        lambda: PointClouds.unpack(torch.ones(3, 2), 1),
    ],
)
def test_single_precision_is_kept_with_one_warning_at_the_caller(make):
    with pytest.warns(PrecisionWarning, match="double precision") as record:
        made = make()
    assert len(record) == 1
    assert record[0].filename == __file__
    assert made.dtype == made.weights.dtype == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error", DistributionWarning)
        made.to("cpu").normalize(scale=1).resample(3)
        PointClouds(np.zeros((3, 2))).to(torch.float32)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PointClouds(np.zeros((3, 2), np.float32), np.ones(3)),
        lambda: PointClouds.from_list([np.zeros((3, 2), np.float32), np.zeros((3, 2))]),
        lambda: PointClouds.from_list([torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int64)]),
    ],
)
def test_mixtures_with_single_precision_become_double(make):
    made = make()
    assert made.dtype == made.weights.dtype == torch.float64


# Frozen, comparable, copyable


def test_the_container_is_immutable_and_detached_from_arrays():
    points, weights = np.ones((3, 2, 1)), np.ones((3, 2))
    made = PointClouds(points, weights)
    points[:], weights[:] = 7, 3
    assert made == PointClouds(np.ones((3, 2, 1)))
    for name in ("points", "weights", "labels", "dim", "other"):
        with pytest.raises(AttributeError):
            setattr(made, name, None)
    with pytest.raises(AttributeError):
        del made.points
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


def test_equality():
    points = np.random.default_rng(0).normal(size=(3, 4, 2))
    weights = np.ones((3, 4))
    made = PointClouds(points, weights)
    assert (made == PointClouds(points.copy())) is True
    weights[0, 0] = 2
    for other in (
        PointClouds(points, weights),
        PointClouds(points + 1e-15 * (points > 1)),
        made[:2],
        made.to(torch.float32),
        PointClouds.from_list([*points, points[0, :1]])[:3].points,
        None,
    ):
        assert (made == other) is False
        assert made != other


def test_pickle_and_deepcopy():
    bags, weights = ragged()
    made = PointClouds.from_list(bags, weights)
    for other in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), copy.copy(made)):
        assert other == made
    assert copy.deepcopy(made).points.data_ptr() != made.points.data_ptr()
    leaf = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    inside = PointClouds(2 * torch.ones(3, 2, 1, dtype=torch.float64), leaf)
    for other in (pickle.loads(pickle.dumps(inside)), copy.deepcopy(inside)):
        assert other == inside
        assert other.weights.requires_grad
        assert not other.points.requires_grad


def test_to():
    made = PointClouds(np.random.default_rng(0).normal(size=(3, 4, 2)))
    single = made.to(torch.float32)
    assert single.dtype == single.weights.dtype == torch.float32
    assert made.to("cpu") == made
    assert made.to(device="cpu", dtype=torch.float32) == single
    for dtype in (torch.int64, torch.float16):
        with pytest.raises(ValueError, match=r"float64 or torch\.float32, got"):
            made.to(dtype)


def test_every_tensor_is_made_on_the_device_of_the_data():
    bags, weights = ragged()
    with torch.device("meta"):  # a tensor made without device= would be on meta and fail
        made = PointClouds.from_list(bags, weights)
        made[::-1][[0, 1]].normalize().resample(4)
        made[made.sizes > 2].pack(atoms=9)
        PointClouds.from_curves(bags[:2], atoms=4)
        PointClouds.from_meshes([(np.eye(3), np.array([[0, 1, 2]]))], atoms=4)
        PointClouds.from_images(np.ones((2, 3, 3)))
        assert PointClouds.unpack(made.pack(), 2) == made


# Gradients


def test_gradients_flow_through_points_and_weights():
    rng = np.random.default_rng(0)
    points = torch.from_numpy(rng.normal(size=(2, 3, 2))).requires_grad_()
    weights = torch.from_numpy(rng.random((2, 3))).requires_grad_()

    def moments(points, weights):
        made = PointClouds(points, weights)[[1, 0]]
        return made.pack(atoms=4), made.normalize().points, made.normalize(scale=2.0).points

    assert torch.autograd.gradcheck(moments, (points, weights))


def test_the_gradient_is_that_of_normalisation_where_weights_sum_to_one():
    weights = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64, requires_grad=True)
    slope = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    (PointClouds(torch.zeros(3, 1, dtype=torch.float64), weights).weights @ slope).backward()
    assert torch.allclose(weights.grad, slope - 3.25)


# Rows


@few
@given(made=clouds(), more=st.integers(0, 3))
def test_unpack_inverts_pack_exactly(made, more):
    rows = made.pack()
    stored = made.points.shape[-2]
    assert rows.shape == (*made.batch_shape, stored * (made.dim + 1))
    assert PointClouds.unpack(rows, made.dim) == made
    wide = PointClouds.unpack(made.pack(atoms=stored + more), made.dim)
    assert torch.equal(wide.points[..., :stored, :], made.points)
    assert torch.equal(wide.weights[..., :stored], made.weights)
    assert not wide.weights[..., stored:].any()
    assert torch.equal(wide.sizes, made.sizes)


def test_pack_removes_padding_but_not_atoms():
    bags, weights = ragged()
    made = PointClouds.from_list(bags, weights)
    assert made[:1].points.shape[-2] == 7
    assert made[:1].pack(atoms=3).shape == (1, 9)
    short = PointClouds.unpack(made[0].pack(atoms=3), 2)
    assert torch.equal(short.points, made.points[0, :3])
    assert torch.equal(short.weights, made.weights[0, :3])
    with pytest.raises(ValueError, match=r"atoms >= 3 to hold the largest cloud, got 2\."):
        made[:1].pack(atoms=2)
    with pytest.raises(ValueError, match=r"atoms >= 7 to hold the largest cloud, got 6\."):
        made.pack(atoms=6)
    for atoms in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="atoms: expected an integer >= 1"):
            made.pack(atoms=atoms)


@pytest.mark.parametrize(
    ("rows", "dim", "message"),
    [
        (np.ones((2, 7)), 2, r"dim \+ 1 = 3 .* \(2, 7\)"),
        (np.ones((0, 6)), 2, r"at least one row, got shape \(0, 6\)"),
        (np.ones((2, 6)), 0, r"dim: expected an integer >= 1, got 0"),
        (np.array([[0, 0, 1.0], [0, 0, -1]]), 2, r"Bag 1: expected finite weights >= 0, got -1\.0"),
    ],
)
def test_rows_are_validated(rows, dim, message):
    with pytest.raises(ValueError, match=message):
        PointClouds.unpack(rows, dim)


# Indices


@pytest.mark.parametrize(
    ("index", "picked"),
    [
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, -2), [5, 3, 1]),
        ([4, 0, -1], [4, 0, 5]),
        (np.array([4, 0, -1], dtype=np.int32), [4, 0, 5]),
        (torch.tensor([4, 0, -1], dtype=torch.int32), [4, 0, 5]),
        ([True, False, True, False, False, True], [0, 2, 5]),
        (np.arange(6) > 3, [4, 5]),
        ([], []),
    ],
)
def test_selections(index, picked):
    bags, weights = ragged()
    made = PointClouds.from_list(bags, weights)
    assert torch.equal(made[index].points, made.points[picked])
    assert torch.equal(made[index].weights, made.weights[picked])
    assert len(made[index]) == len(picked)


def test_an_integer_gives_a_single_cloud():
    bags, weights = ragged()
    made = PointClouds.from_list(bags, weights)
    for index in (1, -5, np.int64(1), torch.tensor(1)):
        assert made[index].batch_shape == ()
        assert made[index] == PointClouds(bags[1], weights[1])
    assert [cloud.batch_shape for cloud in made] == [()] * 6


def test_the_index_is_along_the_last_batch_axis():
    points = np.random.default_rng(0).normal(size=(3, 4, 5, 2))
    made = PointClouds(points)
    assert made[1] == PointClouds(points[:, 1])
    assert made[[2, 0]] == PointClouds(points[:, [2, 0]])
    assert len(list(made)) == len(made) == 4


# Resampling


def test_resample_draws_atoms_by_weight():
    made = PointClouds(np.arange(5.0)[:, None], np.array([0, 0.1, 0, 0.6, 0.3]))
    draws = 20_000
    drawn = made.resample(draws, seed=1)
    assert drawn.weights.unique().tolist() == [1 / draws]
    share = torch.bincount(drawn.points.flatten().long(), minlength=5) / draws
    assert share[[0, 2]].tolist() == [0, 0]
    error = (share - made.weights).abs() / (made.weights * (1 - made.weights) / draws).sqrt()
    assert error[made.weights > 0].max() < 5
    assert made.resample(7, seed=1) == made.resample(7, seed=1) != made.resample(7, seed=2)


def test_resample_keeps_batch_axes_draws_apart_and_takes_generators():
    bags, weights = ragged()
    made = PointClouds.from_list(bags, weights)
    drawn = made.resample(50)
    assert drawn.points.shape == (6, 50, 2)
    for cloud, bag in zip(drawn.points, bags, strict=True):
        assert (cloud[:, None] == torch.from_numpy(bag)).all(-1).any(-1).all()
    batch = PointClouds(np.random.default_rng(0).normal(size=(2, 3, 4, 1)))
    assert batch.resample(6).points.shape == (2, 3, 6, 1)
    assert batch[0].resample(6)[0].points.shape == (6, 1)
    generator = torch.Generator().manual_seed(3)
    first, second = made.resample(9, seed=generator), made.resample(9, seed=generator)
    assert first == made.resample(9, seed=3)
    assert first != second
    with pytest.raises(ValueError, match="n: expected an integer >= 1, got 0"):
        made.resample(0)


# Normalisation


def test_normalize_uses_pooled_weighted_moments_of_like():
    bags, weights = ragged(seed=1)
    train = PointClouds.from_list(bags, weights)
    test = PointClouds.from_list(*ragged(seed=2))
    measures = [w / w.sum() for w in weights]
    centre = np.mean([w @ bag for w, bag in zip(measures, bags, strict=True)], axis=0)
    squares = [w @ (bag - centre) ** 2 for w, bag in zip(measures, bags, strict=True)]
    scale = np.sqrt(np.mean(squares, axis=0))
    normal = test.normalize(like=train)
    torch.testing.assert_close(
        normal.points, (test.points - torch.from_numpy(centre)) / torch.from_numpy(scale)
    )
    assert torch.equal(normal.weights, test.weights)
    assert train.normalize() == train.normalize(like=train)


def test_normalize_without_clouds():
    none = PointClouds(np.eye(3)[:, None])[:0]
    assert len(none.normalize(scale=1)) == 0
    with pytest.raises(ValueError, match="standard deviation is the scale"):
        none.normalize()


def test_normalize_with_a_given_scale():
    made = PointClouds(np.array([[[1.0, 5]], [[3.0, 5]]]))
    assert made.normalize(scale=2).points.flatten().tolist() == [-0.5, 0, 0.5, 0]
    each = made.normalize(scale=np.array([2, 4]))
    assert each == made.normalize(scale=torch.tensor([2.0, 4.0])) == made.normalize(scale=[2, 4])
    assert made[0].normalize(like=made, scale=1).points.tolist() == [[-1, 0]]
    for scale in (0, -1.0, np.nan, np.inf, [1, 2, 3], [1, 0]):
        with pytest.raises(ValueError, match="scale: expected one positive number or 2 of them"):
            made.normalize(scale=scale)


def test_normalize_refuses_a_coordinate_without_spread():
    points = np.random.default_rng(0).normal(size=(3, 4, 2))
    points[..., 1] = 0.1
    made = PointClouds.from_list([*points, points[0, :2]])  # padding does not count as spread
    with pytest.raises(ValueError, match=r"Coordinate 1: .* got one value everywhere; pass scale="):
        made.normalize()
    for other in (PointClouds(np.zeros((1, 3))), np.ones(2)):
        with pytest.raises(TypeError, match="like to be PointClouds of dimension 2, got"):
            made.normalize(like=other)


@pytest.mark.parametrize("form", [list, np.array, pd.Series, pd.Index])
def test_text_selects_by_label(form: Any) -> None:
    clouds = PointClouds.from_list({"a": [1.0], "b": [2.0], "c": [3.0]})
    for X in (clouds, MixedInputs(cells=clouds)):
        assert X[form(["c", "a"])] == X[[2, 0]]
        assert X["b"] == X[1]
        with pytest.raises(IndexError, match=r"once in \['a', 'b', 'c'\], got 'd'"):
            X[form(["a", "d"])]
