"""Other processes, other defaults of PyTorch, and the transforms of torch.func."""

import multiprocessing
from collections.abc import Callable, Iterator

import pytest
import torch
from fault_tasks import Children
from processes_tasks import BAGS, TARGETS, changed_by_defaults, make_model, predicted, same_bits

from gp_distributions import (
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    PointClouds,
    SlicedWasserstein,
    SparseDistributionGP,
    integrate_hyperparameters,
)

CLOUDS, NEW = PointClouds.from_list(BAGS[:10]), PointClouds.from_list(BAGS[10:])


def conditioned() -> Callable[[PointClouds], tuple[torch.Tensor, torch.Tensor]]:
    model = make_model()
    return lambda X: model.condition_on_observations(X, TARGETS[10:]).leave_one_out()


@pytest.fixture(scope="module")
def model() -> DistributionGP:
    return make_model()


# Python 3.12 warns of every fork of a process with threads, such as those of progress bars.
@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch: no gradients after a fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_predicts_the_same_bits(model: DistributionGP) -> None:
    expected = predicted(model)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        found = pool.apply_async(predicted, (model,)).get(timeout=120)
        again = pool.apply_async(make_model).get(timeout=120)
    assert same_bits(found, expected)
    assert same_bits(predicted(again), expected)


def test_another_process_predicts_the_same_bits(model: DistributionGP, children: Children) -> None:
    assert same_bits(children.call(predicted, model), predicted(model))


def test_other_defaults_of_pytorch_change_nothing(children: Children) -> None:
    """They hold for a whole process."""
    bits, digits = children.call(changed_by_defaults)
    assert digits == []
    made_from_data = {"data", "drawn", "sliced", "random", "rigid", "mmd", "features", "landmarks"}
    made_from_data |= {"fourier", "transport", "scaled", "search"}
    assert made_from_data & set(bits) == set()


@pytest.fixture
def meta() -> Iterator[Callable[[], None]]:
    """Make a device without data the default: tensors that a function makes there are found out."""
    yield lambda: torch.set_default_device("meta")
    torch.set_default_device(None)


@pytest.mark.parametrize(
    "predict",
    [
        lambda: make_model().predict,
        lambda: DistributionGP(CLOUDS, TARGETS[:10], sampling_noise=True).predict,
        lambda: SparseDistributionGP(CLOUDS, TARGETS[:10], num_inducing=4).predict,
        lambda: integrate_hyperparameters(make_model()).predict,
        lambda: ClassificationGP(CLOUDS, ["a", "b"] * 5).predict_proba,
        conditioned,
    ],
    ids=["exact", "noise", "sparse", "integrated", "classes", "conditioned"],
)
def test_the_default_device_does_not_matter(predict: Callable, meta: Callable[[], None]) -> None:
    """Everything is computed where the model is."""
    function = predict()
    expected, _ = function(NEW), meta()
    assert all(map(torch.equal, function(NEW), expected))


def test_transforms_of_functions_are_refused() -> None:
    distance = SlicedWasserstein(3, num_slices=4)
    rows = CLOUDS.pack().unflatten(0, (2, 5))
    kernel = DistributionKernel(distance)
    functions: list[Callable] = [distance.squared, lambda x: distance.squared(x, rows[0])]
    for function in (*functions, lambda x: kernel(x).to_dense()):
        with pytest.raises(TypeError, match=r"torch\.func .*batch axes"):
            torch.func.vmap(function)(rows)
    with pytest.raises(TypeError, match=r"torch\.func .*torch\.autograd"):
        torch.func.grad(lambda x: distance.squared(x).sum())(rows)
    assert distance.squared(rows).shape == (2, 5, 5)
