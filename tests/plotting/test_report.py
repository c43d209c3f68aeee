"""Reports are whole, escaped, reproducible pages whose numbers agree with independent computations."""

import base64
import re
from functools import cache, partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models.transforms.outcome import Log
from scipy.stats import binom, norm

from gp_distributions import (
    MMD,
    ClassificationGP,
    DistributionGP,
    DistributionKernel,
    GaussianMixtures,
    Gaussians,
    MixedInputs,
    MixtureModel,
    MMDKernel,
    PointClouds,
    PrecomputedDistance,
    RigidSlicedWasserstein,
    SlicedWassersteinKernel,
    SparseClassificationGP,
    SparseDistributionGP,
    integrate_hyperparameters,
    load,
    relevance,
    report,
    save,
)
from gp_distributions.judging import ClassPredictions, NormalPredictions
from gp_distributions.models import NormalizeClouds
from gp_distributions.models.likeliest import likeliest
from gp_distributions.plotting.reports import page as pages
from gp_distributions.plotting.reports.judging import LEVELS, counts, judge, nearest, training_of
from gp_distributions.plotting.reports.words import number, percent, writer

RNG = np.random.default_rng(3)
SIZES = RNG.integers(4, 12, 24)
BAGS = {f"p{i}": RNG.normal(size=2) + RNG.normal(size=(int(n), 2)) for i, n in enumerate(SIZES)}
CLOUDS = PointClouds.from_list(BAGS)
Y = np.array([bag[:, 0].mean() for bag in BAGS.values()]) + 0.1 * RNG.normal(size=24)
LABELS = np.where(Y > 0, "high", "low")
TRAIN, TEST = slice(0, 16), slice(16, 24)
SVG = "data:image/svg+xml;base64,"
EVIL = "<script>alert('1')</script>\"&"
MODEL = DistributionGP(CLOUDS[TRAIN], Y[TRAIN])


class Page(HTMLParser):
    """The elements of a page, its text, and the cells of its tables."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def images(self) -> list[str]:
        return [dict(attrs)["src"] or "" for tag, attrs in self.elements if tag == "img"]


def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def check_alone(found: Page) -> None:
    """Check that a page is complete in itself and runs nothing."""
    tags = {tag for tag, _ in found.elements}
    assert not tags & {"script", "link", "iframe", "object", "a", "form"}
    assert found.images
    for tag, attrs in found.elements:
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("src", "href", "srcset", "action"):
            value = attrs.get(name)
            assert value is None or value.startswith(SVG), tag
        assert tag != "img" or attrs["alt"]
    for source in found.images:
        picture = base64.b64decode(source.removeprefix(SVG), validate=True)
        assert b"</svg>" in picture
        assert b"<script" not in picture
        references = re.findall(rb'href="([^"]*)"', picture)
        assert all(each.startswith((b"#", b"data:")) for each in references)


PICTURE = pages._picture


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures empty, because drawing takes most of the time."""
    monkeypatch.setattr(pages, "_picture", lambda *_: SVG)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, undrawn: None) -> None:
    """Draw the pictures after all."""
    monkeypatch.setattr(pages, "_picture", PICTURE)


@pytest.mark.usefixtures("drawn")
def test_scores_of_regression(tmp_path: Path) -> None:
    mean, std = (values.numpy() for values in MODEL.predict(CLOUDS[TEST]))
    found = page(
        report(MODEL, CLOUDS[TEST], Y[TEST], tmp_path / "a.html", level=0.8, label="width")
    )
    check_alone(found)
    error = Y[TEST] - mean
    inside = sum(abs(e) <= norm.ppf(0.9) * s for e, s in zip(error, std, strict=True))
    squares = 1 - (error**2).sum() / ((Y[TEST] - Y[TEST].mean()) ** 2).sum()
    text = found.text.replace("\n", "")
    assert f"{number(squares)}R²" in text
    assert f"{number(np.sqrt((error**2).mean()))}typical error" in text
    low, high = (int(binom.ppf(p, 8, 0.8)) for p in (0.005, 0.995))
    assert ["80%", percent(inside / 8), f"{inside} of 8", f"{low} to {high}"] in found.rows
    worst = int(np.abs(error).argmax())
    (row,) = (row for row in found.rows if row[:1] == [f"p{16 + worst}"] and len(row) == 5)
    assert float(row[1].replace("\N{MINUS SIGN}", "-")) == pytest.approx(Y[16 + worst], abs=0.01)
    assert "None of these objects was used" in found.text


def test_repeated_measurements_are_new_objects() -> None:
    training = training_of(MODEL)
    assert training is not None
    shifted = torch.from_numpy(Y[TRAIN] + 0.01)
    _, places = judge(MODEL, CLOUDS[TRAIN], CLOUDS[TRAIN].pack(), shifted, training)
    assert places == [-1] * 16


def classified(probabilities: Any, truth: Any) -> ClassPredictions:
    return ClassPredictions.of(torch.as_tensor(truth), torch.as_tensor(probabilities))


def normal(truth: Any) -> NormalPredictions:
    targets = torch.as_tensor(truth)
    return NormalPredictions.of(targets, 0 * targets, 0 * targets + 1)


def test_scores_of_classes(tmp_path: Path) -> None:
    probabilities = RNG.dirichlet([2, 1, 1], 45)
    total, bins = counts(classified(probabilities, RNG.integers(3, size=45)), 0.95)
    assert [b["total"] for b in bins] == [12, 11, 11, 11]
    assert sum(b["count"] for b in bins) == total["count"]
    assert sum(b["nominal"] * b["total"] for b in bins) == pytest.approx(probabilities.max(1).sum())
    # The range holds at least 99% of what the probabilities give: there are four bins and their total.
    draws = (RNG.random((20000, 45)) < probabilities.max(1)).sum(1)
    assert ((total["low"] <= draws) & (draws <= total["high"])).mean() > 0.985
    model = ClassificationGP(CLOUDS[TRAIN], LABELS[TRAIN])
    found = model.predict_proba(CLOUDS[TEST]).numpy()
    of_truth = [p[list(model.classes_).index(c)] for p, c in zip(found, LABELS[TEST], strict=True)]
    text = page(report(model, CLOUDS[TEST], LABELS[TEST], tmp_path / "a.html")).text
    shares = np.unique(LABELS[TEST], return_counts=True)[1] / 8
    assert f"{number(-np.log(of_truth).mean())}log loss; " in text
    assert f"log loss; {number(-(shares * np.log(shares)).sum())} with" in text


def test_verdicts_on_calibrated_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most about 5% of calibrated models have any count outside its range."""
    monkeypatch.setattr(binom, "interval", cache(binom.interval))
    rng, size, reports = np.random.default_rng(30), 30, 400
    outside = {"classes": 0, "intervals": 0}
    for _ in range(reports):
        probabilities = rng.dirichlet([1, 1, 1], size)
        truth = (rng.random((size, 1)) > probabilities.cumsum(1)[:, :2]).sum(1)
        total, bins = counts(classified(probabilities, truth), 0.95)
        outside["classes"] += any(hits["verdict"] for hits in (total, *bins))
        _, levels = counts(normal(rng.normal(size=size)), 0.99)
        outside["intervals"] += any(hits["verdict"] for hits in levels)
    # 5% and two standard errors of this simulation.
    limit = reports * 0.05 + 2 * np.sqrt(reports * 0.05 * 0.95)
    assert all(count <= limit for count in outside.values())


def test_verdicts_on_predictions_that_are_too_sure() -> None:
    rng = np.random.default_rng(0)
    _, levels = counts(normal(2 * rng.normal(size=100)), 0.99)
    assert [hits["verdict"] for hits in levels] == [-1] * (len(LEVELS) + 1)
    sure = np.tile([0.9, 0.1], (100, 1))
    assert counts(classified(sure, rng.integers(2, size=100)), 0.95)[0]["verdict"] == -1


def test_neighbours_are_nearest_in_the_space_of_the_kernel() -> None:
    training, rows = CLOUDS[TRAIN].pack(), CLOUDS.pack()
    own = [*range(16), *[-1] * 8]
    places, distances = nearest(MODEL, rows, training, own, 5)
    gram = MODEL.covar_module(rows).to_dense().detach().numpy()
    squared = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    unit = np.sqrt(squared[:16, :16].sum() / (16 * 15))
    for i in range(24):
        others = [j for j in range(16) if j != i]
        expected = sorted(np.sqrt(squared[i, others].clip(0)) / unit)[:5]
        np.testing.assert_allclose(distances[i], expected, rtol=1e-6)
        np.testing.assert_allclose(np.sqrt(squared[i, places[i]]) / unit, expected, rtol=1e-6)


@pytest.mark.usefixtures("drawn")
def test_everything_that_users_write_is_escaped(tmp_path: Path) -> None:
    named = PointClouds.from_list({f"{EVIL}{name}": bag for name, bag in BAGS.items()})
    options = {"title": EVIL, "label": EVIL + "$\\frac$", "names": [EVIL, "$\\x$ $"], "date": EVIL}
    path = report(
        MODEL, named[TEST], Y[TEST], tmp_path / "a.html", train_labels=[EVIL] * 16, **options
    )
    found = page(path)
    check_alone(found)
    assert found.text.count(EVIL) > 20
    covariates = {EVIL: [EVIL, "b"] * 12, f"{EVIL}2": Y}
    mixed = MixedInputs(**{EVIL: CLOUDS, "other": covariates})
    labels = np.where(Y > 0, EVIL, "</style>")
    classifier = ClassificationGP(mixed[TRAIN], labels[TRAIN])
    found = page(report(classifier, mixed, labels, path, train_labels=[EVIL] * 16))
    check_alone(found)
    assert "</style>" in found.text
    assert f"{EVIL}2" in found.text


@pytest.mark.usefixtures("drawn")
def test_equal_inputs_give_equal_files(tmp_path: Path) -> None:
    options: dict[str, Any] = {"date": "1 March", "relevance": False}
    first, second = (
        report(MODEL, CLOUDS[TEST], Y[TEST], tmp_path / name, **options).read_bytes()
        for name in ("a.html", "b.html")
    )
    assert first == second
    assert first.count(b"1 March") == 1


def cases() -> dict[str, tuple[Any, Any, Any]]:
    means = torch.from_numpy(np.stack([bag.mean(0) for bag in BAGS.values()]))
    identity = torch.eye(2, dtype=torch.float64).expand(24, 2, 2)
    mixtures = GaussianMixtures(means[:, None], identity[:, None])
    mixed = MixedInputs(cells=CLOUDS, arm=["a", "b"] * 12, age=np.arange(24.0))
    flat, solid, wide = (PointClouds(RNG.normal(size=(24, 6, d))) for d in (1, 3, 5))
    index = torch.arange(24.0, dtype=torch.float64)[:, None]
    pose = DistributionKernel(RigidSlicedWasserstein(3, max_degree=2))
    table = DistributionKernel(PrecomputedDistance(torch.cdist(means, means).square()))
    normalised = {"input_transform": NormalizeClouds.from_data(CLOUDS[TRAIN])}
    both = SlicedWassersteinKernel(2) + DistributionKernel(MMD(2, bandwidth=1.0))
    return {
        "sampling noise": (partial(DistributionGP, sampling_noise=True), CLOUDS, Y),
        "several outputs": (DistributionGP, CLOUDS, np.stack([Y, -Y], 1)),
        "shared kernel": (SparseDistributionGP, CLOUDS, np.stack([Y, -Y], 1)),
        "known noise": (partial(DistributionGP, train_Yvar=0.1 + 0 * Y[TRAIN]), CLOUDS, Y),
        "normalised": (partial(DistributionGP, **normalised), CLOUDS, Y),
        "rows": (partial(DistributionGP, covar_module=both), CLOUDS.pack(), Y),
        "mixed": (DistributionGP, mixed, Y),
        "sparse": (partial(SparseDistributionGP, num_inducing=8), CLOUDS, Y),
        "classification": (ClassificationGP, CLOUDS, LABELS),
        "sparse classification": (SparseClassificationGP, CLOUDS, (Y > 0).astype(int)),
        "gaussians": (DistributionGP, Gaussians(means, identity), Y),
        "mixtures": (
            partial(DistributionGP, covar_module=MMDKernel(2, inputs="mixtures")),
            mixtures,
            Y,
        ),
        "five dimensions": (DistributionGP, wide, Y),
        "unknown pose": (partial(DistributionGP, covar_module=pose), solid, Y),
        "one dimension": (DistributionGP, flat, Y),
        "precomputed": (partial(DistributionGP, covar_module=table), index, Y),
        "constant": (DistributionGP, CLOUDS, 0 * Y + 3),
    }


CASES = cases()
DRAWN = ("mixed", "classification", "one dimension", "constant")


@pytest.mark.parametrize("name", CASES)
def test_all_models(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if name in DRAWN:
        request.getfixturevalue("drawn")
    make, X, y = CASES[name]
    model = make(X[TRAIN], y[TRAIN])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = page(report(model, X[8:], y[8:], tmp_path / "a.html"))
    if name in DRAWN:
        check_alone(found)
    assert "Of these, 8 were also used to train" in " ".join(found.text.split())
    assert "nan" not in found.text.lower()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    drawn = sum(attrs.get("alt") == "The points of these objects." for _, attrs in found.elements)
    assert drawn == (0 if name in ("gaussians", "mixtures", "precomputed") else 2)


@pytest.mark.parametrize("kind", ["single", "integrated", "mixture"])
def test_training_objects_are_predicted_without_themselves(kind: str, tmp_path: Path) -> None:
    model: Any = MODEL if kind == "single" else integrate_hyperparameters(MODEL)
    if kind == "mixture":
        model = MixtureModel([DistributionGP(CLOUDS[TRAIN], Y[TRAIN], MMDKernel(2)), model], [1, 3])
    training = training_of(likeliest(model))
    assert training is not None
    (found,), places = judge(model, CLOUDS[8:], CLOUDS[8:].pack(atoms=30), Y[8:], training)
    assert places == [*range(8, 16), *[-1] * 8]
    assert isinstance(found, NormalPredictions)
    mean, std = model.predict(CLOUDS[8:])
    mean[:8], std[:8] = (moment[8:] for moment in model.leave_one_out())
    np.testing.assert_allclose(found.mean[0, :, 0], mean.numpy())
    np.testing.assert_allclose(found.std[0, :, 0], std.numpy())
    text = " ".join(page(report(model, CLOUDS[8:], Y[8:], tmp_path / "a.html")).text.split())
    assert "Of these, 8 were also used to train" in text
    if kind != "single":
        assert {"integrated": "settings of one model", "mixture": "average 2 models"}[kind] in text
        assert f"counts most, with a weight of {percent(float(model.weights.max()))}" in text


def test_mixtures_of_models_with_different_training_data(tmp_path: Path) -> None:
    members = [DistributionGP(CLOUDS[i : i + 8], Y[i : i + 8]) for i in (0, 8)]
    model = MixtureModel(members, [0.6, 0.4])
    found = page(report(model, CLOUDS[TRAIN], Y[TRAIN], tmp_path / "a.html", relevance=False))
    assert "cannot tell whether these 16 are among" in found.text


def test_models_without_their_training_data(tmp_path: Path) -> None:
    save(SparseDistributionGP(CLOUDS[TRAIN], Y[TRAIN]), tmp_path / "model")
    found = page(report(load(tmp_path / "model"), CLOUDS[TEST], Y[TEST], tmp_path / "a.html"))
    assert "cannot tell whether these 8 are among the objects" in found.text
    assert "Where predictions come from" not in found.text


def test_names_of_training_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    names = [f"trained {i}" for i in range(16)]
    named = page(report(MODEL, CLOUDS, Y, path, train_labels=names, relevance=False)).text
    assert re.search(r"trained \d", named)
    numbered = r"training object \d"
    assert not re.search(numbered, page(report(MODEL, CLOUDS, Y, path, relevance=False)).text)
    held_out = page(report(MODEL, CLOUDS[TEST], Y[TEST], path, relevance=False)).text
    assert re.search(numbered, held_out)
    with pytest.raises(ValueError, match="16 names of training objects, got 3"):
        report(MODEL, CLOUDS, Y, path, train_labels=["a", "b", "c"])


def test_relevance(tmp_path: Path) -> None:
    found = relevance(MODEL)
    most = max(found.entries, key=lambda entry: entry.loss).coordinate or "whole bag"
    given, default, without = (
        report(MODEL, CLOUDS[TEST], Y[TEST], tmp_path / "a.html", relevance=each).read_text()
        for each in (found, True, False)
    )
    assert given == default
    assert f"Relevance of inputs; {most} matters most." in given
    assert "What matters" not in without


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The bars of sensitivities that a report draws, by name."""
    drawn: dict[str, float] = {}
    make = pages.sensitivities

    def spy(*arguments: Any) -> Any:
        found = make(*arguments)
        drawn.update(
            {e.name.removeprefix("X: "): e.loss for e in found.entries if e.loss == e.loss}
        )
        return found

    monkeypatch.setattr(pages, "sensitivities", spy)
    return drawn


def test_sensitivities_are_those_of_relevance(bars: dict[str, float], tmp_path: Path) -> None:
    X = MixedInputs(cells=CLOUDS, arm=["a", "b"] * 12, age=np.arange(24.0))
    model = DistributionGP(X, Y)
    every = SparseDistributionGP(X, Y, model.covar_module, num_inducing=24)
    every.likelihood, every.mean_module = model.likelihood, model.mean_module
    report(every, X, Y, tmp_path / "a.html", names={"cells": ["CD4", "CD8"]})
    found = relevance(model, names={"cells": ["CD4", "CD8"]})
    expected = {e.name: e.sensitivity for e in found.entries if np.isfinite(e.sensitivity)}
    assert list(expected) == ["cells: CD4", "cells: CD8", "age"]
    assert bars == pytest.approx(expected, rel=1e-3)


def test_sensitivities_are_those_of_random_objects(bars: dict[str, float], tmp_path: Path) -> None:
    """In sorted data, the first objects do not represent all of them."""
    points = RNG.normal(size=(160, 6, 2))
    points[:100, :, 1] *= 0.01
    points[100:, :, 1] += 3 * RNG.normal(size=(60, 1))
    y = points[..., 1].mean(-1) + 0.3 * points[..., 0].mean(-1)
    model = SparseDistributionGP(PointClouds(points), y, num_inducing=30)
    model.covar_module.base_kernel.lengthscale = 3.0
    text = report(model, PointClouds(points), y, tmp_path / "a.html").read_text()
    assert bars["coordinate 1"] > 2 * bars["coordinate 0"]
    assert "that to coordinate 1 is the largest" in text


def test_coordinates_drawn_are_those_that_matter(tmp_path: Path) -> None:
    X = PointClouds(RNG.normal(size=(24, 6, 5)))
    y = X.points[..., 2].mean(-1) + X.points[..., 4].mean(-1)
    model, claim = DistributionGP(X, y), "the two coordinates that matter most"
    for given in (True, relevance(model)):
        text = page(report(model, X, y, tmp_path / "a.html", relevance=given)).text
        assert text.count(f"by coordinate 2 and coordinate 4, {claim}") == 2
    # Nothing is said of what matters if it is not known, or known of coordinates with other names.
    for given in (False, relevance(model, names="abcde")):
        text = page(report(model, X, y, tmp_path / "a.html", relevance=given)).text
        assert claim not in text
        assert "by coordinate 0 and coordinate 1" in text


def test_predictions_far_from_training_data_are_not_interpreted(tmp_path: Path) -> None:
    places = np.r_[np.linspace(0, 1, 20), 3.0, 3.1]
    X = PointClouds(places[:, None, None] + np.linspace(-0.1, 0.1, 5)[:, None])
    model = DistributionGP(X[:20], 2 * places[:20])
    model.covar_module.base_kernel.lengthscale, model.likelihood.noise = 50.0, 1e-6
    np.testing.assert_allclose(model.predict(X[20:])[0], 2 * places[20:], rtol=0.05)
    found = page(report(model, X[20:], 2 * places[20:], tmp_path / "a.html", relevance=False))
    assert "Even the nearest training object is at a distance of" in found.text
    assert "the average" not in found.text.partition("Where predictions come from")[2]


def test_the_sentence_is_about_the_worst_output(tmp_path: Path) -> None:
    y = np.stack([Y, np.where(np.arange(24) == 20, 50.0, -Y)], 1)
    model = DistributionGP(CLOUDS[TRAIN], y[TRAIN])
    path = tmp_path / "a.html"
    for name, options in (("B", {"label": ["A", "B"]}), ("Output 2", {})):
        found = page(report(model, CLOUDS[TEST], y[TEST], path, relevance=False, **options)).text
        assert re.search(
            rf"The largest error: p20\s+{name}: predicted \S+, .* measured 50\.", found
        )


TWO, CLASSIFIER = np.stack([Y, Y], 1), ClassificationGP(CLOUDS, LABELS)


@pytest.mark.parametrize(
    ("model", "X", "y", "options", "message"),
    [
        (MODEL, CLOUDS, Y, {"level": 95}, "level between 0 and 1"),
        (MODEL, CLOUDS, Y[:3], {}, "one target for each"),
        (MODEL, CLOUDS, [*Y[:2], np.nan, *Y[3:]], {}, "that of cloud 2 is"),
        (MODEL, CLOUDS, TWO, {}, "Expected 1 outputs, got 2"),
        (MODEL, CLOUDS[:1], Y[:1], {}, "at least two objects"),
        (MODEL, CLOUDS, Y, {"label": ["a", "b"]}, "Expected 1 labels, got 2"),
        (MODEL, CLOUDS, Y, {"names": ["a"]}, "2 names of coordinates"),
        (MODEL, CLOUDS, Y, {"names": {"cells": "ab"}}, r"of the blocks \['X'\], got block 'cells'"),
        (MODEL, CLOUDS, pd.Series(Y, index=CLOUDS.labels)[::-1], {}, "order of the clouds"),
        (
            DistributionGP(CLOUDS, np.exp(Y), outcome_transform=Log()),
            CLOUDS,
            Y,
            {},
            "Expected Standardize or None .* got Log",
        ),
        (CLASSIFIER, CLOUDS[:2], ["low", "middle"], {}, "got {'middle'}"),
    ],
)
def test_invalid_arguments(
    model: Any, X: Any, y: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        report(model, X, y, tmp_path / "a.html", **options)
    assert not list(tmp_path.iterdir())


def test_numbers() -> None:
    written = [number(x).replace("\N{MINUS SIGN}", "-") for x in (0.5, -1.23456, 123456.0, 1e-9)]
    assert written == ["0.5", "-1.23", "123456", "1e-09"]
    assert number(float("nan")) == "not defined"
    cases = ((0.15, -2.345, "-2.35"), (0.15, -0.001, "0.00"), (1234.0, 1.5e6, "1500000"))
    for unit, value, text in (*cases, (1e-9, 1.234e-8, "0.0000000123")):
        assert writer(unit)(value).replace("\N{MINUS SIGN}", "-") == text
