"""A state machine of models: made, fitted, saved, copied, conditioned and asked in any order."""

import contextlib
import copy
import io
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from botorch.exceptions.warnings import InputDataWarning
from fuzzing.measures import gaussians, mixtures, point_clouds
from fuzzing.settings import changed, settings
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from gp_distributions import (
    MMD,
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    Fourier,
    MixedInputs,
    MixtureModel,
    NormalizeClouds,
    ScaledDistance,
    SharedKernelGP,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    fit,
    integrate_hyperparameters,
    load,
    save,
)
from gp_distributions.models import IntegratedGP, KernelRidgeClassifier
from gp_distributions.warnings import DistributionWarning

# Predictions that were computed in another order agree on these digits: squared distances have ten where
# clouds lie far from the origin, and standard deviations are roots of small differences.
DIGITS = 1e-4


@dataclass(eq=False)
class Held:
    """A model, what it predicts for some inputs, and what it was made of.

    Attributes:
        model: The model.
        make: Function that makes it again, as it was before it was fitted; ``None`` if it was
            conditioned on observations.
        new: Inputs to predict.
        expected: What the model predicted when it was last changed.
        state: Its parameters, buffers and training data then.
        exact: Whether it computes predictions from scratch, so that a copy predicts the same bits.
    """

    model: Any
    make: Callable[[], Any] | None
    new: Any
    exact: bool = True
    expected: list[Tensor] = field(init=False)
    state: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.remember()

    def remember(self) -> None:
        """Take what the model predicts now for what it must predict until it is changed."""
        self.expected = predicted(self.model, self.new)
        self.state = state_of(self.model)

    def take_mode(self) -> None:
        """Accept that a method may have put the model into evaluation mode, as those of BoTorch do."""
        now = {n: v for n, v in state_of(self.model).items() if n.startswith("training")}
        assert all(not mode or self.state[name] for name, mode in now.items())
        self.state |= now

    def check(self) -> None:
        """Predictions have not changed the model, nor has anything else."""
        found = predicted(self.model, self.new)
        assert same_bits(found, self.expected)
        now = state_of(self.model)
        assert now.keys() == self.state.keys()
        changes = [name for name in now if not equal(now[name], self.state[name])]
        assert changes == [], [(name, now[name], self.state[name]) for name in changes]


@contextlib.contextmanager
def warned() -> Iterator[None]:
    """Allow the warnings of the package; all others stay errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistributionWarning)
        warnings.simplefilter("ignore", InputDataWarning)
        yield


@warned()
def predicted(model: Any, new: Any) -> list[Tensor]:
    if isinstance(model, KernelRidgeClassifier):
        return [model.scores(new)]
    if hasattr(model, "predict_proba"):
        return [model.predict_proba(new)]
    return list(model.predict(new)) + list(model.predict(new, observation_noise=False))


def state_of(model: Any) -> dict[str, Any]:
    if isinstance(model, KernelRidgeClassifier):
        return {f"kernel.{n}": v.clone() for n, v in model.covar_module.state_dict().items()}
    state: dict[str, Any] = {n: v.clone() for n, v in model.state_dict().items()}
    state |= {f"gradient of {n}": p.requires_grad for n, p in model.named_parameters()}
    # All constraints of GPyTorch share one transform.
    modules = [(n, m) for n, m in model.named_modules() if not n.endswith("._transform")]
    state |= {f"training of {n}": m.training for n, m in modules}
    if isinstance(model, DistributionGP):
        state["inputs"], state["targets"] = model.train_inputs[0], model.train_targets
    return state


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return (
            a.shape == b.shape
            and a.dtype == b.dtype
            and torch.equal(a.nan_to_num(), b.nan_to_num())
        )
    return bool(a == b)


def same_bits(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(map(equal, found, expected))


def close(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(
        bool(((a - b).abs() <= DIGITS * (1 + b.abs().max())).all())
        for a, b in zip(found, expected, strict=True)
    )


NONE = torch.Size([])


def makers(X: Any, y: Tensor, labels: list[str], profile: str) -> dict[str, Callable[[], Any]]:
    """Functions that make models of clouds, by what is special about them."""
    several = torch.stack([y, y.sin()], -1)
    two = torch.Size([2])
    inducing: dict[str, Any] = {"num_inducing": 4}

    def kernel(shape: torch.Size = NONE, **options: Any) -> ScaleKernel:
        options = {"profile": profile, "num_slices": 5, "num_quantiles": 6} | options
        sliced = SlicedWassersteinKernel(X.dim, batch_shape=shape, **options)
        return ScaleKernel(sliced, batch_shape=shape)

    def normalised() -> DistributionGP:
        transform = NormalizeClouds.from_data(X, scale=2.0)
        return DistributionGP(X, y, kernel(), input_transform=transform)

    def scaled() -> DistributionGP:
        # Far from the distances between atoms, a bandwidth costs digits: at 10^6 times, all but four.
        spread = float(X.points[X.weights > 0].std(0, correction=0).amax())
        distance = ScaledDistance(MMD(X.dim, bandwidth=spread or 1.0))
        return DistributionGP(X, y, ScaleKernel(DistributionKernel(distance, profile)))

    def mixture() -> MixtureModel:
        members = [DistributionGP(X, y, kernel()), DistributionGP(X, y, kernel(p=1))]
        return MixtureModel(members, [1, 2])

    return {
        "mixtures": lambda: DistributionGP(
            X, y, DistributionKernel(Fourier(X.dim, inputs="mixtures", num_frequencies=6), profile)
        ),
        "clouds": lambda: DistributionGP(X, y, kernel()),
        "several": lambda: DistributionGP(X, several, kernel(two)),
        "shared": lambda: SharedKernelGP(X, several, kernel()),
        "noise": lambda: DistributionGP(X, y, kernel(), train_Yvar=0.1 * y.var().expand(len(y))),
        "sampling": lambda: DistributionGP(X, y, kernel(), sampling_noise=True),
        "ties": lambda: DistributionGP(X, y, kernel(), sampling_noise="ties"),
        "normalised": normalised,
        "scaled": scaled,
        "batch": lambda: DistributionGP(X.pack().expand(2, -1, -1), several.mT, kernel(two)),
        "sparse": lambda: SparseDistributionGP(X, y, kernel(), **inducing),
        "sparse several": lambda: SparseDistributionGP(X, several, kernel(), **inducing),
        "sparse sampling": lambda: SparseDistributionGP(
            X, y, kernel(), sampling_noise=True, **inducing
        ),
        "classes": lambda: ClassificationGP(X, labels, kernel()),
        "sparse classes": lambda: SparseClassificationGP(X, labels, kernel(), **inducing),
        "ridge": lambda: KernelRidgeClassifier(X, labels, kernel(), ridge=1e-3),
        "mixture": mixture,
        "integrated": lambda: integrate_hyperparameters(DistributionGP(X, y, kernel())),
    }


KINDS = ("gaussians", "mixed", *makers(None, torch.zeros(2), [], ""))


@st.composite
def regressions(draw: st.DrawFn) -> Held:
    """Models of all kinds on inputs of all kinds, before a fit."""
    kind = draw(st.sampled_from(KINDS))
    source = {"gaussians": gaussians, "mixtures": mixtures}.get(kind, point_clouds)
    X = draw(source(least=5))
    new = draw(source(dim=X.dim))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    y = torch.randn(len(X), generator=generator, dtype=torch.float64)
    y = y * draw(st.sampled_from([1.0, 1e-6, 1e6])) + draw(st.sampled_from([0.0, 100.0]))
    profile = draw(st.sampled_from(["matern52", "gaussian", "exponential", "cauchy"]))
    labels = ["a", "b", "a", "b", "b", "a", "a"][: len(X)]
    inputs: Any = X
    if kind == "mixed":
        arms = np.array(["a", "b", "c"] * 3)
        inputs = MixedInputs(bag=X, age=torch.arange(len(X)) * 1.5, arm=arms[: len(X)])
        new = MixedInputs(bag=new, age=torch.arange(len(new)) * 1.0, arm=arms[: len(new)])
    make = makers(X, y, labels, profile).get(kind, lambda: DistributionGP(inputs, y))
    with warned():
        return Held(make(), make, new)


FITTED = DistributionGP | SparseDistributionGP


def has_data(model: Any) -> bool:
    """Whether a model has its training data, which files of sparse models leave out."""
    if isinstance(model, SparseDistributionGP):
        try:
            model.training_data()
        except ValueError:
            return False
    return isinstance(model, FITTED)


SAVED = FITTED, MixtureModel, IntegratedGP


class ModelMachine(RuleBasedStateMachine):
    """Models change only when they are fitted, and copies predict the same bits."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Held] = []
        self.settings = settings()
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self) -> None:
        self.folder.cleanup()

    def keep(self, held: Held) -> Held:
        self.all.append(held)
        return held

    @invariant()
    def nothing_changes(self) -> None:
        for held in self.all:
            held.check()
        names = changed(self.settings, settings())
        assert not names, names

    @rule(target=held, made=regressions())
    def make(self, made: Held) -> Held:
        return self.keep(made)

    @rule(held=held, restarts=st.integers(0, 1))
    @warned()
    def fit(self, held: Held, restarts: int) -> None:
        if has_data(held.model):
            fit(held.model, restarts=restarts, options={"maxiter": 3}, progress=False)
            held.remember()

    @rule(held=held)
    @warned()
    def fit_members(self, held: Held) -> None:
        """Members of a mixture can be fitted in place; the mixture then predicts otherwise."""
        if isinstance(held.model, MixtureModel) and held.make is not None:
            for member in held.model.models:
                fit(member, restarts=0, options={"maxiter": 3}, progress=False)
            held.remember()

    @rule(target=held, held=held)
    @warned()
    def integrate(self, held: Held) -> Any:
        """The integrated model is a model of its own, whose base stays as it is."""
        model = held.model
        plain = isinstance(model, DistributionGP) and not isinstance(model, SharedKernelGP)
        if not plain or model.num_outputs > 1 or len(model.batch_shape):
            return multiple()
        return self.keep(Held(integrate_hyperparameters(model), None, held.new, exact=held.exact))

    @rule(held=held)
    @warned()
    def covariances(self, held: Held) -> None:
        """Covariances are symmetric and positive semi-definite up to rounding."""
        model = held.model
        found: list[tuple[Tensor, float]] = []
        if isinstance(model, FITTED):
            # A difference of covariances, whose rounding errors are those of larger numbers.
            found.append((model.posterior(held.new).covariance_matrix, DIGITS))
            held.take_mode()
        if isinstance(model, DistributionGP):
            found.append((model.covar_module(model.train_inputs[0]).to_dense(), 1e-12))
        elif has_data(model):
            found.append((model.covar_module(model.sample_rows(10)[0]).to_dense(), 1e-12))
        for matrix, digits in found:
            scale = matrix.detach().diagonal(dim1=-2, dim2=-1).amax()
            torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=digits * float(scale))
            assert torch.linalg.eigvalsh(matrix).amin() >= -DIGITS * scale

    @rule(held=held)
    @warned()
    def predict_others(self, held: Held) -> None:
        """Predictions for other inputs leave those for the first as they are; parts agree with all."""
        if isinstance(held.new, MixedInputs):
            return
        for i in range(len(held.new)):
            part = predicted(held.model, held.new[[i]])
            whole = held.expected
            if part[0].dim() == whole[0].dim() and part[0].shape[0] == 1:
                assert close(part, [w[i : i + 1] for w in whole]), (part, whole)

    @rule(held=held)
    @warned()
    def leave_one_out(self, held: Held) -> None:
        if has_data(held.model):
            options = {"progress": False} if isinstance(held.model, SparseDistributionGP) else {}
            first, again = held.model.leave_one_out(**options), held.model.leave_one_out(**options)
            pairs = zip(first, again, strict=True)
            assert all(equal(a, b) for a, b in pairs)
            held.take_mode()

    @rule(held=held)
    @warned()
    def move(self, held: Held) -> None:
        """Change hyperparameters as a user does: predictions are those of a model that starts there."""
        if isinstance(held.model, FITTED | MixtureModel) and has_data(held.model):
            with torch.no_grad():
                for parameter in held.model.parameters():
                    parameter += 0.1 * parameter.requires_grad
            again = pickle.loads(pickle.dumps(held.model))
            for part in again.modules():
                if isinstance(part, DistributionGP):
                    part.prediction_strategy = None
            assert close(predicted(held.model, held.new), predicted(again, held.new))
            held.remember()

    @rule(target=held, held=held)
    @warned()
    def condition(self, held: Held) -> Any:
        conditioned = DistributionGP | MixtureModel | IntegratedGP
        if not isinstance(held.model, conditioned) or isinstance(held.model, ClassificationGP):
            return multiple()
        if len(held.model.batch_shape):
            return multiple()
        mean, std = held.expected[:2]
        Y = (mean + std).reshape(len(held.new), held.model.num_outputs)
        likelihood = getattr(held.model, "likelihood", None)
        fixed = isinstance(likelihood, FixedNoiseGaussianLikelihood)
        options = {"noise": torch.full_like(Y, 0.1)} if fixed else {}
        more = held.model.condition_on_observations(held.new, Y, **options)
        return self.keep(Held(more, None, held.new, exact=False))

    @rule(
        target=held,
        held=held,
        how=st.sampled_from(["file", "pickle", "deepcopy", "torch", "state", "device"]),
    )
    @warned()
    def copy(self, held: Held, how: str) -> Any:
        model = held.model
        match how:
            case "file" if isinstance(model, SAVED):
                path = Path(self.folder.name, "model")
                save(model, path)
                again = load(path)
                # A saved model computes everything from scratch from now on.
                if not held.exact:
                    assert close(predicted(model, held.new), held.expected)
                    held.remember()
                    held.exact = True
            case "pickle":
                again = pickle.loads(pickle.dumps(model))
            case "torch":
                file = io.BytesIO()
                torch.save(model, file)
                file.seek(0)
                again = torch.load(file, weights_only=False)
            # Sparse models choose their inducing clouds anew.
            case "state" if isinstance(model, DistributionGP) and held.make is not None:
                again = held.make()
                again.load_state_dict(model.state_dict())
                # BoTorch standardises the targets anew, which may change their last bits.
                assert close(predicted(again, held.new), held.expected)
                return self.keep(Held(again, held.make, held.new, exact=held.exact))
            case "device" if isinstance(model, FITTED):
                again = copy.deepcopy(model).to("cpu")
            case _:
                again = copy.deepcopy(model)
        found = predicted(again, held.new)
        if held.exact:
            assert same_bits(found, held.expected), (how, found, held.expected)
        else:
            assert close(found, held.expected)
        return self.keep(Held(again, held.make, held.new, exact=held.exact))

    @rule(held=held)
    @warned()
    def single_precision(self, held: Held) -> None:
        if isinstance(held.model, FITTED) and has_data(held.model):
            single = copy.deepcopy(held.model)
            predicted(single, held.new)
            single.to(torch.float32)
            # Clouds that nearly coincide, far away from the origin, have no covariances in float32.
            with contextlib.suppress(NotPSDError):
                assert all(t.dtype == torch.float32 for t in predicted(single, held.new))
