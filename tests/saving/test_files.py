"""Saved models: the same bits elsewhere, named errors for damaged files, and nothing executed."""

import copy
import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log, Standardize
from cases import KERNELS, as_rows, randn, random_clouds, sliced_kernel
from fault_tasks import Children
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    ConstantKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import (
    GammaPrior,
    HalfCauchyPrior,
    HalfNormalPrior,
    LogNormalPrior,
    NormalPrior,
    SmoothedBoxPrior,
)
from processes_tasks import loaded_prediction
from torch import Tensor

from gp_distributions import (
    ClassificationGP,
    CurveGP,
    DistributionGP,
    DistributionKernel,
    MMDKernel,
    PointClouds,
    ReferenceMeasure,
    SharedKernelGP,
    SinkhornKernel,
    SinkhornPotential,
    SlicedWasserstein,
    SlicedWassersteinKernel,
    files,
    fit,
    integrate_hyperparameters,
)
from gp_distributions.distances import Fourier
from gp_distributions.files import read_tensors, write_tensors, written_whole
from gp_distributions.kernels import Polynomial, PowerExponential, RationalQuadratic
from gp_distributions.models import ensemble_of
from gp_distributions.saving.description import Description
from gp_distributions.saving.files import SavedModelError, load, save

ROWS = as_rows(random_clouds(30, sizes=(5, 12)))
WIDTH = ROWS.shape[-1]
TARGETS = 0.1 + ROWS[:, :6].square().sum(-1)
OUTPUTS = torch.stack([TARGETS, TARGETS.sqrt(), TARGETS.sin()], dim=-1)
KIND = "a model written by gp_distributions.save"
EARLIER = b"\x89GPDIST\n\x01\0\0\0" + bytes(16) + b'{"versions": {"gp_distributions": "0.2.0"}}'
# An ordinary column beside those of the clouds.
WIDE = torch.cat([ROWS, TARGETS[:, None].cos()], dim=-1)


def make_model(kernel: Kernel | None = None, *, rows: Tensor = ROWS, **options: Any) -> Any:
    kernel = sliced_kernel() if kernel is None else kernel
    return DistributionGP(rows[:20], TARGETS[:20], kernel, **options)


def sinkhorn_model() -> DistributionGP:
    points = randn(5, 2)
    kernel = SinkhornKernel(ReferenceMeasure(points, torch.arange(1, 6)), epsilon=0.5)
    return make_model(ScaleKernel(kernel))


def varied(model: DistributionGP) -> DistributionGP:
    """The model with parameters that no constructor gives."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def assert_same_bits(actual: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for a, b in zip(actual, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.numpy().tobytes() == b.numpy().tobytes()


def returned(model: DistributionGP, path: Path) -> DistributionGP:
    """The model from its file; it can be saved again, and is described in the same way."""
    random = torch.get_rng_state()
    save(model, path)
    loaded = load(path)
    assert torch.equal(torch.get_rng_state(), random)
    save(loaded, path.with_name("again"))
    assert read_header(path) == read_header(path.with_name("again"))
    return loaded


def density(model: DistributionGP) -> Tensor:
    """The log marginal likelihood, priors included."""
    model.train()
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    return mll(model(*model.train_inputs), model.train_targets).detach()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gpd"


def composed_of(compose: Callable[[Kernel], Kernel]) -> Any:
    kernel = compose(sliced_kernel(active_dims=range(WIDTH)))
    return varied(make_model(kernel, rows=WIDE))


def normalised(**options: Any) -> Any:
    kernel = sliced_kernel(active_dims=range(WIDTH)) * RBFKernel(active_dims=[WIDTH])
    transform = Normalize(WIDTH + 1, indices=[WIDTH], center=0.0, **options)
    return make_model(kernel, rows=WIDE, input_transform=transform)


def several(parts: list[int], **options: Any) -> Any:
    kernel = sliced_kernel(batch_shape=torch.Size([3]), profile="rational_quadratic")
    model = varied(DistributionGP(ROWS[:20], OUTPUTS[:20], kernel, **options))
    return model.subset_output(parts)


def in_batches(*outputs: int) -> Any:
    rows = ROWS[:24].unflatten(0, (2, 12))
    targets = TARGETS[:24].unflatten(0, (2, 12)).reshape(2, 12, *[1] * len(outputs))
    return DistributionGP(rows, targets.expand(2, 12, *outputs), sliced_kernel())


def of_single_precision() -> Any:
    model = make_model()
    distance = model.covar_module.base_kernel.distance
    distance.directions = distance.directions.float()
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "sum": lambda: composed_of(lambda k: k + ScaleKernel(MaternKernel(1.5, active_dims=[WIDTH]))),
    "shared": lambda: composed_of(lambda k: k + k * PeriodicKernel(active_dims=[WIDTH])),
    "spectral mixture": lambda: composed_of(
        lambda k: k + SpectralMixtureKernel(num_mixtures=3, active_dims=[WIDTH])
    ),
    "nested": lambda: composed_of(lambda k: (k + ConstantKernel()) * RQKernel(active_dims=[WIDTH])),
    "ard": lambda: composed_of(
        lambda k: (
            k * LinearKernel(active_dims=[WIDTH])
            + RBFKernel(ard_num_dims=2, active_dims=[0, WIDTH])
        )
    ),
    "outputs": lambda: several([0, 1, 2]),
    "part of the outputs": lambda: several([0, 2]),
    "one of the outputs": lambda: several([1]),
    "outputs of known noise": lambda: several([0, 2], train_Yvar=OUTPUTS[:20].square() + 0.1),
    "shared by outputs": lambda: varied(SharedKernelGP(ROWS[:20], OUTPUTS[:20], sliced_kernel())),
    "batch": in_batches,
    "batch of two outputs": lambda: in_batches(2),
    "known noise": lambda: varied(make_model(train_Yvar=TARGETS[:20].square() + 0.1)),
    "no outcome transform": lambda: make_model(outcome_transform=None),
    "chain": lambda: make_model(
        outcome_transform=ChainedOutcomeTransform(log=Log(), standard=Standardize(1, min_stdv=1e-3))
    ),
    "integers of NumPy": lambda: make_model(
        DistributionKernel(
            SlicedWasserstein(2, p=1, num_slices=np.int64(7), center=True), PowerExponential(0.3)
        )
    ),
    "mmd": lambda: make_model(MMDKernel(2, kernel="matern32", bandwidth=0.7, normalize=True)),
    "features of mmd": lambda: make_model(
        MMDKernel(2, num_features=8, features="quasi_random", profile="cauchy", seed=3)
    ),
    "frequencies drawn": lambda: make_model(
        DistributionKernel(Fourier(2, measure="cauchy", scale=3.0, num_frequencies=7, seed=2))
    ),
    "frequencies given": lambda: make_model(
        DistributionKernel(Fourier(2, frequencies=[[1.0, 0.5], [0.2, 3.0]]))
    ),
    "single precision of a part": of_single_precision,
    "input transform": normalised,
    "input transform in use": lambda: normalised().eval(),
    "bounds of an input transform": lambda: normalised(
        bounds=torch.tensor([[-2.0], [2.0]], dtype=torch.float64)
    ),
    "origin": lambda: make_model(sliced_kernel(profile=Polynomial(2, offset=0), origin=ROWS[28:])),
    "origin of a plain kernel": lambda: make_model(
        DistributionKernel(SlicedWasserstein(2), "linear", origin=ROWS[28:])
    ),
}


class TestBits:
    @pytest.mark.parametrize("name", MODELS)
    def test_every_model(self, name: str, path: Path) -> None:
        model = MODELS[name]()
        rows = (WIDE if model.train_inputs[0].shape[-1] > WIDTH else ROWS)[20:]
        loaded = returned(model, path)
        assert (type(loaded), loaded.training) == (type(model), model.training)
        assert repr(loaded.covar_module) == repr(model.covar_module)
        assert_same_bits(loaded.predict(rows), model.predict(rows))
        assert torch.equal(density(loaded), density(model))

    # Every distance with a smooth profile, and every profile with one distance.
    @pytest.mark.parametrize("name", [n for n in KERNELS if n[:4] == "sw2-" or "-gaussian" in n])
    def test_every_kernel(self, name: str, path: Path) -> None:
        case = KERNELS[name]
        rows = case.inputs.rows(14, sizes=(3, 9))
        targets = torch.linspace(-1, 1, 10, dtype=torch.float64).square()
        model = varied(DistributionGP(rows[:10], targets, ScaleKernel(case.make())))
        expected = model.predict(rows[10:])
        loaded = returned(model, path)
        assert_same_bits(loaded.predict(rows[10:]), expected)
        assert repr(loaded) == repr(model)
        assert density(loaded) == density(model)

    def test_mixtures(self, path: Path) -> None:
        """Members that share a kernel, mixtures within mixtures, and weights that are not rounded."""
        kernel = sliced_kernel()
        single = varied(make_model(kernel))
        inner = ensemble_of([single, make_model(kernel)], [1, 2])
        model = ensemble_of([inner, sinkhorn_model()], [0.1, 0.2])
        expected = model.predict(ROWS[20:])
        loaded = returned(model, path)
        assert_same_bits(loaded.predict(ROWS[20:]), expected)
        assert torch.equal(loaded.weights, model.weights)

    @pytest.mark.parametrize("kind", ["column", "outputs", "known noise"])
    def test_mixtures_of_members_that_share_data(self, kind: str, path: Path) -> None:
        targets = {"column": TARGETS[:, None], "outputs": torch.stack([TARGETS, -TARGETS], dim=-1)}
        noise = torch.full_like(TARGETS[:20], 0.1) if kind == "known noise" else None
        batch_shape = torch.Size([2] if kind == "outputs" else [])
        single = DistributionGP(
            ROWS[:20],
            targets.get(kind, TARGETS)[:20],
            sliced_kernel(batch_shape=batch_shape),
            train_Yvar=noise,
        )
        members = [single, ensemble_of([single])]
        if kind != "outputs":
            members += [integrate_hyperparameters(single)] * 2
        model = ensemble_of(members)
        expected = model.predict(ROWS[20:])
        assert_same_bits(returned(model, path).predict(ROWS[20:]), expected)

    def test_one_data_set_expanded(self, path: Path) -> None:
        model = DistributionGP(
            ROWS[:20].expand(3, -1, -1), TARGETS[:20].expand(3, -1), sliced_kernel()
        )
        expected = model.predict(ROWS[20:])
        assert_same_bits(returned(model, path).predict(ROWS[20:]), expected)
        assert path.stat().st_size < 2 * ROWS[:20].nbytes + 20_000

    @pytest.mark.parametrize("positions", [None, torch.linspace(0, 1, 6).double()])
    def test_curves(self, positions: Tensor | None, path: Path) -> None:
        curves = TARGETS[:20, None] * torch.linspace(1, 2, 6) + WIDE[:20, :6]
        curves[[3, 5], [0, 2]] = torch.nan
        model = varied(CurveGP(ROWS[:20], curves, sliced_kernel(), positions=positions, rank=4))
        model.output_noise.mul_(1.5)
        loaded = returned(model, path)
        assert type(loaded) is CurveGP
        weights = torch.ones(1, 6)
        found = (each.predict_functionals(ROWS[20:], weights) for each in (loaded, model))
        assert_same_bits(*found)
        assert_same_bits(loaded.leave_one_out(), model.leave_one_out())

    @pytest.mark.parametrize(
        "labels",
        [["no", "yes, both"], [3, 1], [1.0, -2.0], [False, True], np.array(["no", "yes"], object)],
        ids=repr,
    )
    def test_classifiers(self, labels: Any, path: Path) -> None:
        given = np.array(labels)[(TARGETS[:20] > TARGETS.median()).long()]
        model = varied(ClassificationGP(ROWS[:20], given, sliced_kernel(), alpha_epsilon=0.05))
        model.alpha_epsilon, model.temperature = 0.02, 0.7
        expected = model.predict_proba(ROWS[20:])
        loaded = returned(model, path)
        assert type(loaded) is ClassificationGP
        assert (loaded.alpha_epsilon, loaded.temperature) == (0.02, 0.7)
        assert loaded.classes_.dtype == model.classes_.dtype
        assert loaded.predict(ROWS[20:]).tolist() == model.predict(ROWS[20:]).tolist()
        assert_same_bits((loaded.predict_proba(ROWS[20:]),), (expected,))
        assert torch.equal(density(loaded), density(model))
        assert torch.equal(loaded.leave_one_out(), model.leave_one_out())

    @pytest.mark.parametrize("q", [(2,), (3, 2)])
    def test_what_was_computed_in_another_way_is_not_kept(
        self, q: tuple[int, ...], path: Path
    ) -> None:
        """Updated caches, and distances computed in parts, differ by rounding from new ones."""
        base = make_model(outcome_transform=None)
        new = ROWS[20 : 20 + int(np.prod(q))].unflatten(0, q)
        model = base.condition_on_observations(new, new[..., :1])
        test = ROWS[26:] if len(q) == 1 else ROWS[26:].unsqueeze(-2).unsqueeze(-2)
        before = model.posterior(test)
        loaded = returned(model, path)
        after = model.posterior(test)
        assert torch.equal(loaded.posterior(test).mean, after.mean)
        assert torch.equal(loaded.posterior(test).variance, after.variance)
        torch.testing.assert_close(after.mean, before.mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(after.variance, before.variance, rtol=1e-10, atol=1e-12)


def fitted_in_space() -> tuple[DistributionGP, Tensor]:
    clouds = random_clouds(30, dim=3, sizes=(5, 12))
    points, weights = zip(*clouds, strict=True)
    kernel = SlicedWassersteinKernel(3, num_slices=12, num_quantiles=20, seed=5)
    X = PointClouds.from_list(points, weights=weights)
    return fit(DistributionGP(X[:20], TARGETS[:20], ScaleKernel(kernel)), restarts=0), X[20:].pack()


def test_a_fresh_process_predicts_the_same_bits(tmp_path: Path, children: Children) -> None:
    expected = {}
    made = {"space": fitted_in_space(), "outputs": (MODELS["outputs"](), ROWS[20:])}
    for kind, (model, rows) in made.items():
        name = str(tmp_path / kind)
        save(model, name)
        expected[name] = rows.numpy(), torch.stack(model.predict(rows)).numpy()
    for name, (rows, values) in expected.items():
        assert children.call(loaded_prediction, name, rows).tobytes() == values.tobytes(), name


class TestParts:
    @pytest.mark.parametrize(
        "prior",
        [
            GammaPrior(2.0, 0.15),
            HalfCauchyPrior(2.0),
            HalfNormalPrior(2.0),
            LogNormalPrior(0.3, 1.2),
            NormalPrior(0.5, 2.0),
            SmoothedBoxPrior(0.1, 2.0, sigma=0.3),
        ],
        ids=lambda prior: type(prior).__name__,
    )
    def test_priors(self, prior: Any, path: Path) -> None:
        prior = functools.partial(copy.deepcopy, prior)
        model = make_model(
            ScaleKernel(
                SlicedWassersteinKernel(2, num_slices=10, lengthscale_prior=prior()),
                outputscale_prior=prior(),
            ),
            likelihood=GaussianLikelihood(noise_prior=prior()),
            mean_module=ConstantMean(constant_prior=NormalPrior(0.0, 1.0)),
        )
        assert density(returned(model, path)) == density(model)

    @pytest.mark.parametrize(
        "constraint",
        [
            Positive(),
            Positive(transform=torch.exp, inv_transform=torch.log, initial_value=2.0),
            GreaterThan(0.1),
            GreaterThan(0.025, transform=None, initial_value=0.7),
            LessThan(5.0),
            Interval(0.1, 4.0, initial_value=1.3),
        ],
        ids=repr,
    )
    def test_constraints(self, constraint: Any, path: Path) -> None:
        model = make_model(
            ScaleKernel(sliced_kernel().base_kernel, outputscale_constraint=constraint),
            mean_module=ZeroMean(),
        )
        loaded = returned(model, path)
        found = loaded.covar_module.raw_outputscale_constraint
        raw = torch.linspace(-3, 3, 7, dtype=torch.float64)
        assert type(found) is type(constraint)
        assert torch.equal(found.transform(raw), constraint.transform(raw))
        assert (found.initial_value is None) == (constraint.initial_value is None)
        assert_same_bits(loaded.predict(ROWS[20:]), model.predict(ROWS[20:]))

    def test_fitting_goes_on(self, path: Path) -> None:
        model = fit(make_model())
        loaded = returned(model, path)
        for each in (model, loaded):
            fit(each, init="current", restarts=0)
        assert all(map(torch.equal, loaded.parameters(), model.parameters()))

    def test_what_is_shared_stays_shared(self, path: Path) -> None:
        reference = ReferenceMeasure(ROWS[:4, :2])
        distances = [SinkhornPotential(reference, epsilon=epsilon) for epsilon in (0.5, 0.7)]
        profile = RationalQuadratic(2.0)
        prior = GammaPrior(2.0, 0.15)
        kernels = [
            DistributionKernel(distances[0], profile, lengthscale_prior=prior),
            DistributionKernel(distances[0], "linear"),
            DistributionKernel(distances[1], profile),
        ]
        kernels[2].raw_lengthscale = kernels[0].raw_lengthscale
        model = make_model(
            kernels[0] + kernels[1] + kernels[2], likelihood=GaussianLikelihood(noise_prior=prior)
        )
        loaded = returned(model, path)
        first, second, third = loaded.covar_module.base_kernel.kernels
        assert first.lengthscale_prior is loaded.likelihood.noise_covar.noise_prior
        assert first.distance is second.distance
        assert first.distance is not third.distance
        assert first.distance.reference is third.distance.reference
        assert first.profile is third.profile
        assert first.raw_lengthscale is third.raw_lengthscale
        assert first.raw_lengthscale is not second.raw_lengthscale

    @pytest.mark.parametrize("training", [True, False])
    def test_modes_and_required_gradients(self, training: bool, path: Path) -> None:
        model = sinkhorn_model().train(training)
        model.covar_module.raw_outputscale.requires_grad_(False)
        model.covar_module.base_kernel.distance.reference.raw_points.requires_grad_()
        loaded = returned(model, path)
        assert {n: p.requires_grad for n, p in loaded.named_parameters()} == {
            n: p.requires_grad for n, p in model.named_parameters()
        }
        assert {n: m.training for n, m in loaded.named_modules()} == {
            n: m.training for n, m in model.named_modules()
        }
        assert isinstance(loaded.covar_module.base_kernel, SinkhornKernel)


class TestFiles:
    def test_paths(self, tmp_path: Path) -> None:
        link, target = tmp_path / "link", tmp_path / "target"
        link.symlink_to(target)
        for path in (str(tmp_path / "a"), link):
            save(make_model(), path)
            assert load(path).num_outputs == 1
        assert link.is_symlink()
        assert {each.name for each in tmp_path.iterdir()} == {"a", "link", "target"}
        with pytest.raises(FileNotFoundError):
            load(tmp_path / "missing")

    @pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
    def test_permissions_are_those_of_the_file_that_is_replaced(self, path: Path) -> None:
        before = os.umask(0o022)
        try:
            save(make_model(sliced_kernel()), path)
            assert path.stat().st_mode & 0o777 == 0o644
            for mode in (0o600, 0o664):
                path.chmod(mode)
                with written_whole(path) as file:  # nobody may read it meanwhile, either
                    assert os.fstat(file.fileno()).st_mode & 0o777 == mode
                assert path.stat().st_mode & 0o777 == mode
        finally:
            os.umask(before)

    def test_any_byte_altered_or_cut_off_is_noticed(self, path: Path) -> None:
        write_tensors(path, KIND, {"a": [1, None]}, [ROWS[:2, :2], torch.tensor(3)])
        content = path.read_bytes()
        for index, byte in enumerate(content):
            other = bytes([byte ^ 1 << index % 8])
            path.write_bytes(content[:index] + other + content[index + 1 :])
            with pytest.raises(SavedModelError):
                load(path)
        for damaged in (content + b"\n", *(content[:length] for length in range(len(content)))):
            path.write_bytes(damaged)
            with pytest.raises(SavedModelError, match=f"{path} is damaged, or is not a model"):
                load(path)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is not a model written by gp_distributions"),
            (pickle.dumps(1), "is not a model written by gp_distributions"),
            (safetensors.numpy.save({"a": np.zeros(2)}), "is not a model written"),
            (EARLIER, r"written by gp_distributions 0\.2\.0, .* Install that version"),
        ],
        ids=["empty", "pickle", "tensors", "0.2.0"],
    )
    def test_other_files(self, content: bytes, message: str, path: Path) -> None:
        path.write_bytes(content)
        with pytest.raises(SavedModelError, match=message):
            load(path)

    @pytest.mark.parametrize(
        ("version", "number", "message"),
        [
            ("0.3.0", 2, r"Install gp_distributions 0\.3\.0.* fit again"),
            ("9.9", 4, r"format 4, and.* Install gp_distributions 9\.9"),
        ],
    )
    def test_other_formats(self, version: str, number: int, message: str, path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "versions", lambda: {"gp_distributions": version})
            patch.setattr(files, "FORMAT", number)
            save(make_model(), path)
        with pytest.raises(SavedModelError, match=message):
            load(path)
        write_tensors(path, "a checkpoint", {}, [])
        with pytest.raises(SavedModelError, match="is a checkpoint, not a model"):
            load(path)


def read_header(path: Path) -> dict[str, Any]:
    return read_tensors(path, KIND)[0]


@pytest.mark.parametrize(
    "objects",
    [
        [{"class": "builtins.exec", "parts": {"*": ["1"]}}],
        [{"class": "sklearn.PCA", "parts": {"parameters": {"items": []}}}],
        [{"class": "gpytorch.RBFKernel", "parts": {"constraint": {"function": "system"}}}],
        [{"class": "gpytorch.RBFKernel", "parts": {"x": {"pickle": "..."}}}],
        [{"class": "gpytorch.RBFKernel", "parts": {"x": {"tensor": 5}}}],
        [{"class": "gpytorch.RBFKernel", "parts": {}, "state": {}, "training": True}],
        [],
        None,
    ],
    ids=str,
)
def test_forged_descriptions(objects: Any, path: Path) -> None:
    """A digest is no signature; only classes and functions of the list are called."""
    write_tensors(path, KIND, {"objects": objects}, [])
    with pytest.raises(SavedModelError, match="cannot be restored here"):
        load(path)


class OwnKernel(SlicedWassersteinKernel):
    pass


class OwnLikelihood(GaussianLikelihood):
    """Not of the package."""


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "named"),
        [
            (lambda: make_model(OwnKernel(2)), "OwnKernel"),
            (lambda: make_model(likelihood=OwnLikelihood()), "OwnLikelihood"),
            (
                lambda: make_model(
                    sliced_kernel(lengthscale_constraint=Positive(lambda x: x**2, torch.sqrt))
                ),
                "<lambda>",
            ),
            (lambda: SingleTaskGP(ROWS[:20], TARGETS[:20, None]), "SingleTaskGP"),
            (
                lambda: ClassificationGP(ROWS[:20], np.arange(20).astype("M8[D]"), sliced_kernel()),
                "ndarray as ClassificationGP.classes",
            ),
        ],
        ids=["kernel", "likelihood", "function", "model", "labels"],
    )
    @pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.InputDataWarning")
    def test_other_classes_are_refused_when_saved(
        self, make: Callable[[], Any], named: str, path: Path
    ) -> None:
        path.write_text("before")
        with pytest.raises(TypeError, match=named) as raised:
            save(make(), path)
        assert path.read_text() == "before"
        assert named == "SingleTaskGP" or "model.state_dict() with torch.save" in str(raised.value)

    def test_priors_by_hand_are_refused(self, path: Path) -> None:
        for name in ("outputscale_prior", "another"):
            model = make_model()
            model.covar_module.register_prior(name, GammaPrior(1.0, 2.0), "raw_outputscale")
            with pytest.raises(TypeError, match=r"prior|another"):
                save(model, path)

    def test_replaced_parts_are_refused(self, path: Path) -> None:
        model = make_model()
        kept = model.likelihood.noise_covar
        model.likelihood.noise_covar = type("OwnNoise", (type(kept),), {})(
            noise_constraint=kept.raw_noise_constraint
        )
        with pytest.raises(TypeError, match=r"modules of gpytorch\.GaussianLikelihood"):
            save(model, path)


def test_views_of_one_tensor_are_one() -> None:
    """Transforms of BoTorch replace buffers by views of them, also while another thread saves."""
    description, tensor = Description(), torch.ones(2)
    assert description.of(tensor) == description.of(tensor.detach())
    assert description.of(tensor) != description.of(tensor.clone())
    assert description.of(torch.ones(4)) != description.of(tensor)
