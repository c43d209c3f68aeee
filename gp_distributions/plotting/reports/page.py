"""The page of a report: what is shown, and how it becomes HTML."""

from __future__ import annotations

import base64
import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from botorch.models.transforms.outcome import Standardize
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.files import written_whole
from gp_distributions.judging import NormalPredictions, Relevance
from gp_distributions.judging import relevance as relevance_of
from gp_distributions.judging.relevance_inputs import (
    Names,
    coordinate_names,
    distributions,
    names_by_block,
)
from gp_distributions.judging.relevances import sensitivities
from gp_distributions.measures import Covariates, MixedEncoding, MixedInputs
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import check_order
from gp_distributions.measures.training_data import counted_rows
from gp_distributions.models import DistributionGP, IntegratedGP, MixtureModel, SparseDistributionGP
from gp_distributions.models.arguments import keeps_clouds
from gp_distributions.models.likeliest import likeliest
from gp_distributions.models.training import share_objects
from gp_distributions.plotting import (
    plot_calibration,
    plot_clouds,
    plot_predictions,
    plot_relevance,
)
from gp_distributions.plotting.reports.judging import (
    Judged,
    Model,
    Training,
    counts,
    judge,
    nearest,
    training_of,
)
from gp_distributions.plotting.reports.words import described, number, percent, writer
from gp_distributions.rows.layout import Block

# Rows of the table of errors; training objects beside each example, and those that relevance needs; and
# marks of a kind that are still vectors rather than pixels.
_WORST, _NEAREST, _FEWEST_RELEVANT, _MOST_VECTORS = 10, 3, 4, 500


def report(
    model: DistributionGP | SparseDistributionGP | MixtureModel | IntegratedGP,
    X: Inputs | Tensor,
    y: Tensor | ArrayLike,
    path: str | os.PathLike[str],
    *,
    title: str = "Report on predictions",
    label: str | Sequence[str] = "",
    names: Names | None = None,
    train_labels: Sequence[Any] | npt.NDArray[Any] | None = None,
    level: float = 0.95,
    relevance: Relevance | bool = True,
    date: str | None = None,
) -> Path:
    r"""Write a report on the predictions of a model, as one HTML file for readers who do not program.

    The report shows how well the model predicts the given objects, whether its intervals or
    probabilities can be trusted, the largest errors, which inputs matter, the training objects most
    similar to some of the given objects, and the model in words. Each picture is explained in plain
    sentences. The file needs no other files and no network, and adapts to phones and dark screens.

    Objects that are among the training objects are predicted from all others
    (:meth:`DistributionGP.leave_one_out`), so the training data can be given as well as held-out data.
    With the errors :math:`e_i` of ``N`` targets of variance :math:`s^2`, the report gives
    :math:`R^2 = 1 - \sum_i e_i^2 / (N s^2)`, the root mean square error beside that of a constant, and
    the coverage of central intervals at several levels, beside the range that chance explains. If the
    intervals are right, all counts of an output lie in their ranges with a probability of at least 95%.

    Args:
        model: A fitted model for regression or classification, or a mixture of models for regression.
            Of a mixture, the page describes the member of largest weight, and what matters to it;
            predictions and intervals are those of the mixture, as if they were normal.
        X: The ``N`` objects, as for ``model.predict``. Their ``labels`` name them in the report.
        y: Their targets, ``N`` or ``N x outputs``, or their labels for classification.
        path: Path to the file.
        title: Title of the report.
        label: Name and unit of the predicted quantity, or of each output.
        names: Names of the coordinates of bags, or such names by block, as for :func:`relevance`.
        train_labels: Names of the training objects. The default is the names in ``X`` if these are the
            training objects, and numbers from zero otherwise.
        level: Nominal probability of the intervals.
        relevance: Whether to compute which inputs matter, which takes most of the time for many
            training objects; or what :func:`relevance` found. For sparse models, the report shows
            sensitivities instead.
        date: Date to show. Default: none, so that equal inputs give equal files.

    Returns:
        The path to the file.

    Raises:
        TypeError: If ``model`` is of another class.
        ValueError: If there are fewer than two objects, their number differs from that of ``y``, a value
            is missing, ``level`` is not between 0 and 1, the outcome transform is not a
            ``Standardize``, a number of names is wrong, or a block of these names does not exist.
        FileNotFoundError: If the folder of the file does not exist.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from gp_distributions import DistributionGP, PointClouds, fit, report
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(14, 5, 2)))
        >>> targets = clouds.points[..., 0].mean(-1)
        >>> model = fit(DistributionGP(clouds[:9], targets[:9]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = report(model, clouds[9:], targets[9:], f"{folder}/report.html")
        ...     "<h1>Report on predictions</h1>" in path.read_text()
        True
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Expected an existing folder, got {path.parent}. Create it first.")
    single = likeliest(model)
    if not isinstance(single, DistributionGP | SparseDistributionGP):
        raise TypeError(
            "Expected a DistributionGP, SparseDistributionGP, a classifier or a mixture of models for "
            f"regression, got {type(single).__name__}. Pass model_ of an estimator; of a pipeline, "
            "pipeline[-1].model_ with the inputs that it sees, pipeline[:-1].transform(X)."
        )
    transform = getattr(single, "outcome_transform", None)
    if not isinstance(transform, Standardize | None):
        raise ValueError(f"Expected Standardize or None as outcome transform, got {transform}.")
    if not 0 < level < 1:
        raise ValueError(f"Expected level between 0 and 1, got {level}.")
    check_order(X, y)
    rows = counted_rows(X, single.encoding).detach()
    if rows.dim() != 2 or len(rows) < 2:
        raise ValueError(f"Expected at least two objects, N x width, got {tuple(rows.shape)}.")
    training = training_of(single)
    if not all(share_objects(single, likeliest(m)) for m in getattr(model, "models", ())):
        training = None
    rows = rows.double() if training is None else rows.to(training[0])
    outputs, places = judge(model, X, rows, y, training)
    labels = [label] * len(outputs) if isinstance(label, str) else list(label)
    if len(labels) != len(outputs):
        raise ValueError(f"Expected {len(outputs)} labels, got {len(labels)}.")
    total = 0 if training is None else len(training[0])
    called, trained = getattr(X, "labels", None), train_labels
    called = [f"object {i}" for i in range(len(rows))] if called is None else [*map(str, called)]
    if trained is None:
        known = dict(zip(places, called, strict=True))
        trained = [known.get(i, f"training object {i}") for i in range(total)]
    elif training is not None and len(trained) != total:
        raise ValueError(f"Expected {total} names of training objects, got {len(trained)}.")
    classes = [str(name) for name in getattr(single, "classes_", ())]
    found = [_output(o, n, level, classes) for o, n in zip(outputs, labels, strict=True)]
    if relevance is True and isinstance(single, DistributionGP):
        relevance = total >= _FEWEST_RELEVANT and relevance_of(single, names=names)
    ranked = isinstance(relevance, Relevance)
    if relevance is True:
        units = [output["constant"] or 1.0 if len(outputs) > 1 else 1.0 for output in found]
        relevance = sensitivities(single, rows, torch.tensor(units), names)
    matters = Relevance(()) if isinstance(relevance, bool) else relevance
    clouds = _clouds(single, names, matters)
    examples = []
    if training is not None:
        examples = _examples(single, rows, training, places, called, trained, found, clouds)
    data = []
    for name, block, _, _ in clouds:
        sizes = sorted(map(len, _bags(single, rows, block)))
        data.append((f"Bags {name}", f"{sizes[0]} to {sizes[-1]} points, dimension {block.dim}"))
    text = _template().render(
        title=title,
        date=date,
        level=level,
        labels=labels,
        names=called,
        classes=classes,
        learned=f"{total} objects" if total else "data",
        seen=sum(place >= 0 for place in places),
        trained=training is not None,
        outputs=found,
        ranked=ranked,
        importance=_importance(matters, ranked) if matters.entries else None,
        examples=examples,
        clouds=clouds,
        model=[*described(model, single, labels), *data],
    )
    with written_whole(path) as file:
        file.write(text.encode())
    return path


@cache
def _template() -> Any:
    """Return the template of the page."""
    import jinja2  # torch requires it

    options: Any = {"undefined": jinja2.StrictUndefined, "trim_blocks": True}
    environment = jinja2.Environment(autoescape=True, **options)
    environment.filters |= {"number": number, "percent": percent}
    return environment.from_string(
        files(__package__).joinpath("report.html.jinja").read_text("utf-8")
    )


def _picture(draw: Callable[..., object], width: float, height: float, columns: int = 1) -> str:
    """Draw on axes and return the figure as a data URI, with the same bytes for the same figure."""
    from matplotlib.collections import Collection
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    figure = Figure(figsize=(width, height), layout="constrained")
    draw(*figure.subplots(1, columns, sharex=True, sharey=True, squeeze=False)[0])
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # names may contain dollars
    for marks in figure.findobj(Collection):
        number = max(len(marks.get_paths()), np.size(marks.get_offsets()) // 2)
        marks.set_rasterized(number > _MOST_VECTORS)
    file, metadata = io.BytesIO(), {"Date": None, "Creator": None}
    figure.savefig(file, format="svg", dpi=200, transparent=True, metadata=metadata)
    # Names of parts are random unless a setting of the whole process says otherwise.
    names: dict[bytes, bytes] = {}
    image = re.sub(
        rb"\b[a-z][0-9a-f]{10}\b",
        lambda match: names.setdefault(match[0], b"part%d" % len(names)),
        file.getvalue(),
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(image).decode()}"


def _output(found: Judged, label: str, level: float, classes: list[str]) -> dict[str, Any]:
    """Return the scores of an output as the page shows them, its pictures and its largest errors."""
    total, levels = counts(found, level)
    shown: dict[str, Any] = {"hits": total, "levels": levels, **found.scores()}
    if isinstance(found, NormalPredictions):
        truth, mean, std = (x.flatten() for x in (found.targets, found.mean, found.std))
        shown["write"] = writer(float(std.median()))
        shown["constant"] = float(truth.std(correction=0))
        images = [
            lambda ax: plot_predictions(truth, mean, std, level=level, label=label, ax=ax),
            lambda ax: plot_calibration(truth, mean, std, label="this model", ax=ax),
        ]
        half = std * torch.special.ndtri(torch.full_like(std, 0.5 + level / 2))
        columns = truth, mean, mean - half, mean + half
        badness = (mean - truth).abs() / (shown["rmse"] or 1.0)
    else:
        from sklearn.calibration import CalibrationDisplay
        from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

        probable, predicted = found.probabilities[0].max(-1)
        right, bins = predicted == found.targets, len(levels)
        table = confusion_matrix(found.targets, predicted, labels=range(len(classes)))
        shares = found.targets.bincount(minlength=len(classes)) / len(right)
        shown["write"] = lambda value: classes[int(value)]
        shown["loss"], shown["often"] = float(-found.log_density.mean()), float(shares.max())
        shown["constant"] = float(torch.special.entr(shares).sum())
        grey: Any = {"cmap": "Greys", "colorbar": False}
        options: Any = {"n_bins": bins, "strategy": "quantile", "name": "this model"}
        images = [
            lambda ax: ConfusionMatrixDisplay(table, display_labels=classes).plot(ax=ax, **grey),
            lambda ax: CalibrationDisplay.from_predictions(
                right, probable, ax=ax, **options
            ).ax_.set(xlabel="predicted probability", ylabel="share that was right"),
        ]
        columns = found.targets, predicted, found.log_density.exp(), probable
        badness = -columns[2]
    return shown | {
        "images": [_picture(draw, 4.8, 4.5) for draw in images],
        "badness": badness,
        "rows": list(zip(*(column.tolist() for column in columns), strict=True)),
        "worst": badness.argsort(descending=True, stable=True)[:_WORST].tolist(),
    }


def _importance(found: Relevance, ranked: bool) -> dict[str, str]:
    """Return a picture of how much inputs matter, and the name of the input that matters most."""
    alone = {entry.block for entry in found.entries} == {"X"}
    entries = [replace(e, block="whole bag") if alone else e for e in found.entries]
    unit = "what predictions lose without it (nats)" if ranked else "change of predictions"
    shown = Relevance(tuple(entries))
    most = max(entries, key=lambda entry: np.nan_to_num(entry.loss, nan=-np.inf))
    name = most.coordinate if alone and most.coordinate else most.name

    def draw(ax: Any) -> None:
        plot_relevance(shown, sort=False, ax=ax).set_xlabel(unit)

    return {"picture": _picture(draw, 4.8, 0.9 + 0.28 * len(entries)), "most": name}


# A block of clouds: name, columns, the two coordinates to draw by number, whether these matter most.
_Clouds = tuple[str, Block, dict[int, str], bool]


def _clouds(model: Model, names: Names | None, matters: Relevance) -> list[_Clouds]:
    found, clouds = distributions(model), []
    given = names_by_block(names, list(found))
    for name, (block, distances) in found.items():
        coordinates = coordinate_names(name, block, given.get(name))
        if block.kind == "clouds" and distances:
            loss = {e.coordinate: e.loss for e in matters.entries if e.block == name}
            order = sorted(range(block.dim), key=lambda i: -loss.get(coordinates[i], 0.0))
            axes = {axis: coordinates[axis] for axis in sorted(order[:2])}
            clouds.append((name, block, axes, loss.keys() >= set(coordinates)))
    return clouds


def _examples(
    model: Model,
    rows: Tensor,
    training: Training,
    places: list[int],
    names: Sequence[str],
    trained: Sequence[Any] | npt.NDArray[Any],
    outputs: list[dict[str, Any]],
    clouds: list[_Clouds],
) -> list[dict[str, Any]]:
    """Return the worst and a median prediction beside the nearest training objects."""
    badness = torch.stack([output["badness"] for output in outputs])
    order = badness.amax(0).argsort(descending=True, stable=True).tolist()
    chosen = [order[0], order[len(order) // 2]]
    own = [places[i] for i in chosen]
    found = nearest(model, rows[chosen], training[0], own, _NEAREST)
    examples = []
    for i, near, distances in zip(chosen, *found, strict=True):
        shown = torch.cat([rows[i : i + 1], training[0][near]])
        called = [names[i], *(str(trained[place]) for place in near)]
        values = [[output["rows"][i][0] for output in outputs], *training[1][near].tolist()]
        columns = [[o["write"](row[k]) for row in values] for k, o in enumerate(outputs)]
        images = [
            _picture(
                _gallery(_bags(model, shown, block), list(axes), called), 6.0, 2.0, len(called)
            )
            for _, block, axes, _ in clouds
        ]
        example = {"number": i, "output": int(badness[:, i].argmax()), "distances": distances}
        example |= {"names": called, "columns": columns, "images": images}
        examples.append(example | {"covariates": _covariates(model, shown)})
    return examples


def _bags(model: Model, rows: Tensor, block: Block) -> list[npt.NDArray[np.float64]]:
    """Return the atoms in rows, as given unless the model makes them of other inputs."""
    if not keeps_clouds(getattr(model, "input_transform", None)):
        rows = model.transform_inputs(rows)
    atoms, weights = Block(block.kind, block.dim).split(block.select(rows))
    return [x[w > 0].double().numpy(force=True) for x, w in zip(atoms, weights, strict=True)]


def _gallery(
    bags: list[npt.NDArray[np.float64]], axes: list[int], names: list[str]
) -> Callable[..., None]:
    """Return a function that draws clouds side by side."""
    spans = np.ptp(np.concatenate(bags), axis=0)  # coordinates may have other units
    scaled = [(bag / np.where(spans > 0, spans, 1.0))[:, axes] for bag in bags]

    def draw(*given: Any) -> None:
        if len(axes) > 1:
            plot_clouds(scaled, axes=given)
        for ax, bag, name in zip(given, bags, names, strict=True):
            if len(axes) == 1:
                ax.hist(bag[:, 0], bins=20, density=True, color="0.4")
            else:
                ax.set_axis_on()
                ax.set(xticks=[], yticks=[])
            ax.set_title(name, fontsize=8)

    return draw


def _covariates(model: Model, rows: Tensor) -> dict[str, list[str]]:
    """Return the numbers and categories in rows of mixed inputs."""
    if not isinstance(model.encoding, MixedEncoding):
        return {}
    return {
        name: [number(v.item()) if isinstance(v, Tensor) else str(v) for v in values]
        for part in MixedInputs.unpack(rows, model.encoding).blocks.values()
        if isinstance(part, Covariates)
        for name, values in part.columns.items()
    }
