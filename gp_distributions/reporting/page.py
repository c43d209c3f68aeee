"""The page of a report: what is shown, and how it becomes HTML."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from botorch.models.transforms.outcome import Standardize
from numpy.typing import ArrayLike
from torch import Tensor

from gp_distributions.measures import MixedInputs
from gp_distributions.measures.covariates import Covariates
from gp_distributions.measures.inputs import Inputs
from gp_distributions.measures.targets import check_order
from gp_distributions.measures.training_data import counted_rows
from gp_distributions.models import (
    ClassificationGP,
    DistributionGP,
    IntegratedGP,
    MixtureModel,
    SparseDistributionGP,
)
from gp_distributions.models.arguments import keeps_clouds
from gp_distributions.models.likeliest import likeliest
from gp_distributions.relevances import Relevance, relevance
from gp_distributions.relevances.inputs import Names, inputs_of
from gp_distributions.relevances.steps import sensitivity_to
from gp_distributions.reporting import pictures
from gp_distributions.reporting.clouds import CloudBlock, cloud_blocks, drawn_rows
from gp_distributions.reporting.judging import LEVELS, Classification, Judged, Regression, judge
from gp_distributions.reporting.neighbours import Neighbour, nearest
from gp_distributions.reporting.training import Classifier, Model, Training, training_of
from gp_distributions.reporting.words import (
    described,
    number,
    percent,
    percent_level,
    versions,
    weighted,
    writer,
)
from gp_distributions.sensitivities import gradients_at
from gp_distributions.writing import written_whole

# Numbers of rows of the table of errors, and of training objects beside each example.
_WORST, _NEAREST = 10, 3
# Relevance needs at least so many training objects. Sensitivities are means over at most so many.
_FEWEST_RELEVANT, _MOST_SENSITIVE = 4, 100
# The typical distance of two training objects.
_ALIKE = 1.0


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
            training objects; or what :func:`relevance` found. For classification and
            sparse models, the report shows sensitivities instead.
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
        >>> clouds = PointClouds(np.random.default_rng(0).normal(size=(20, 5, 2)))
        >>> targets = clouds.points[..., 0].mean(-1)
        >>> model = fit(DistributionGP(clouds[:15], targets[:15]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = report(model, clouds[15:], targets[15:], f"{folder}/report.html")
        ...     "<h1>Report on predictions</h1>" in path.read_text()
        True
    """
    import jinja2  # torch requires it

    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Expected an existing folder, got {path.parent}. Create it first.")
    single = likeliest(model)
    if not isinstance(single, DistributionGP | SparseDistributionGP):
        advice = " Pass its attribute model_." if hasattr(model, "model_") else ""
        if hasattr(model, "steps"):
            advice = (
                " Pass the model of its last step, pipeline[-1].model_, and the inputs that it sees, "
                "pipeline[:-1].transform(X)."
            )
        raise TypeError(
            "Expected a DistributionGP, SparseDistributionGP, a classifier or a mixture of models for "
            f"regression, got {type(single).__name__}.{advice}"
        )
    transform = getattr(single, "outcome_transform", None)
    if not isinstance(transform, Standardize | None):
        raise ValueError(
            "Expected Standardize or None as outcome transform, got "
            f"{type(transform).__name__}, under which predictions are not normal."
        )
    if not 0 < level < 1:
        raise ValueError(f"Expected level between 0 and 1, got {level}.")
    check_order(X, y)
    rows = counted_rows(X, single.encoding)
    if rows.dim() != 2 or len(rows) < 2:
        raise ValueError(f"Expected at least two objects, N x width, got {tuple(rows.shape)}.")
    known = None if train_labels is None else np.asarray(train_labels, dtype=object)
    training = training_of(single, known)
    rows = rows.detach().to(torch.float64 if training is None else training.rows.dtype)
    blocks = cloud_blocks(single, names)
    judged = judge(model, X, rows, y, training)
    labelled = [label] if isinstance(label, str) else list(label)
    if len(labelled) == 1:
        labelled *= len(judged.outputs)
    if len(labelled) != len(judged.outputs):
        raise ValueError(f"Expected {len(judged.outputs)} labels, got {len(labelled)}.")
    page = _Page(single, X, rows, judged, training, blocks, labelled, level)
    importance = page.importance(relevance, names)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"number": number, "percent": percent, "level": percent_level}
    template = files("gp_distributions.reporting").joinpath("report.html.jinja")
    text = environment.from_string(template.read_text(encoding="utf-8")).render(
        title=title,
        date=date,
        level=level,
        importance=importance,
        **page.summary(),
        **page.examples(importance),
        model=[
            *weighted(model),
            *described(single, blocks, training, labelled),
            ("Software", versions()),
        ],
    )
    with written_whole(path) as file:
        file.write(text.encode())
    return path


def _writer(output: Regression) -> Callable[[float], str]:
    """Return a function that writes values of an output to the precision of its predictions."""
    return writer(float(np.median(output.std)))


class _Page:
    """What a report shows."""

    def __init__(
        self,
        model: Model,
        X: Inputs | Tensor,
        rows: Tensor,
        judged: Judged,
        training: Training | None,
        blocks: list[CloudBlock],
        labels: list[str],
        level: float,
    ) -> None:
        self.model, self.rows, self.judged = model, rows, judged
        self.training, self.blocks, self.labels, self.level = training, blocks, labels, level
        self.names = [f"object {i}" for i in range(len(rows))]
        given = getattr(X, "labels", None)
        if given is not None:
            self.names = list(map(str, given))
        elif training is not None and training.labels is not None:
            for i, place in enumerate(judged.places):
                if place >= 0:
                    self.names[i] = str(training.labels[place])
        self.training_names: list[str] = []
        if training is not None:
            self.training_names = [f"training object {i}" for i in range(len(training.rows))]
            if training.labels is not None:
                self.training_names = list(map(str, training.labels))
            else:
                for i, place in enumerate(judged.places):
                    if place >= 0:
                        self.training_names[place] = self.names[i]

    def summary(self) -> dict[str, Any]:
        """Return what the report says of all predictions."""
        outputs = self.judged.outputs
        classification = isinstance(outputs[0], Classification)
        named = [label for label in self.labels if label]
        what = ", ".join(dict.fromkeys(named)) or ("classes" if classification else "a quantity")
        training = self.training
        return {
            "classification": classification,
            "what": what,
            "learned": "data" if training is None else f"{len(training.rows)} objects",
            "total": len(self.rows),
            "checked": self.judged.checked,
            "seen": int((self.judged.places >= 0).sum()),
            "outputs": [
                self._classification(output)
                if isinstance(output, Classification)
                else self._regression(output, label)
                for output, label in zip(outputs, self.labels, strict=True)
            ],
        }

    def _regression(self, output: Regression, label: str) -> dict[str, Any]:
        half = output.half_width(self.level)
        worst = np.argsort(-output.errors, kind="stable")[:_WORST]
        write = _writer(output)
        levels = sorted({*LEVELS, self.level})
        return {
            "name": label,
            "scores": output,
            "hits": output.coverage(self.level),
            "levels": [output.coverage(level) for level in levels],
            "predictions": pictures.predictions(output, label, self.level),
            "calibration": pictures.coverage(output),
            "worst": [
                {
                    "name": self.names[i],
                    "truth": write(output.truth[i]),
                    "mean": write(output.mean[i]),
                    "low": write(output.mean[i] - half[i]),
                    "high": write(output.mean[i] + half[i]),
                    "error": write(output.mean[i] - output.truth[i]),
                    "outside": output.errors[i] > half[i],
                }
                for i in worst
            ],
        }

    def _classification(self, output: Classification) -> dict[str, Any]:
        worst = np.argsort(output.of_truth, kind="stable")[:_WORST]
        return {
            "name": "",
            "scores": output,
            "hits": output.hits(),
            "levels": output.bins(),
            "confusion": list(zip(output.classes, output.table(), strict=True)),
            "predictions": pictures.probabilities(output),
            "calibration": pictures.reliability(output),
            "worst": [
                {
                    "name": self.names[i],
                    "truth": output.classes[output.truth[i]],
                    "of_truth": output.of_truth[i],
                    "predicted": output.classes[output.predicted[i]],
                    "probability": output.probabilities[i].max(),
                }
                for i in worst
            ],
        }

    def importance(self, given: Relevance | bool, names: Names | None) -> dict[str, Any] | None:
        """Return how much inputs matter: relevance if it can be computed, else sensitivities."""
        if given is False:
            return None
        model = self.model
        exact = isinstance(model, DistributionGP) and not isinstance(model, ClassificationGP)
        if given is True and exact:
            if self.training is None or len(self.training.rows) < _FEWEST_RELEVANT:
                return None
            given = relevance(model, names=names)
        whole = "" if model.encoding else "whole bag"
        if isinstance(given, Relevance):
            order = sorted(given.entries, key=lambda entry: -entry.loss)
            most = order[0].coordinate or whole or order[0].block
            return {
                "kind": "relevance",
                "picture": pictures.relevances(given, whole),
                "alt": f"Relevance of inputs; {most} matters most.",
                "of": {(e.block, e.coordinate): e.loss for e in order},
            }
        found = self._sensitivities(names)
        if not found:
            return None
        unit = "change of scores" if isinstance(model, Classifier) else "change of predictions"
        called = [
            name or whole or block if block == "X" else ": ".join(filter(None, (block, name)))
            for block, name in found
        ]
        most = called[int(np.argmax(list(found.values())))]
        return {
            "kind": "sensitivity",
            "picture": pictures.sensitivities(called, list(found.values()), unit),
            "alt": f"Sensitivity to inputs; that to {most} is the largest.",
            "of": found,
        }

    def _sensitivities(self, names: Names | None) -> dict[tuple[str, str | None], float]:
        """Return the root mean square change of predictions for a step of one standard deviation.

        The mean is over random objects. Several outputs count in units of their standard deviations.
        """
        model, rows = self.model, self.rows
        found = [each for each in inputs_of(model, names) if each.is_continuous]
        if not found or not keeps_clouds(getattr(model, "input_transform", None)):
            return {}
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
        chosen = order[:_MOST_SENSITIVE].sort().values.to(rows.device)
        gradients, _ = gradients_at(model, rows[chosen])
        units = [o.constant or 1.0 for o in self.judged.outputs if isinstance(o, Regression)]
        if len(units) > 1:
            gradients = gradients / gradients.new_tensor(units)[:, None, None]
        return {
            (each.block, each.coordinate): sensitivity_to(each, rows, chosen, gradients)
            for each in found
        }

    def examples(self, importance: dict[str, Any] | None) -> dict[str, Any]:
        """Return some objects beside their nearest training objects."""
        training = self.training
        if training is None:
            return {"examples": [], "drawn": False}
        order = self.judged.worst_first
        chosen = {"The largest error": order[0], "A typical prediction": order[len(order) // 2]}
        if isinstance(self.judged.outputs[0], Classification):
            chosen = {"The least expected class": order[0], **chosen}
            del chosen["The largest error"]
        places = np.array(list(chosen.values()))
        found = nearest(
            self.model,
            self.rows[torch.from_numpy(places).to(self.rows.device)],
            training.rows,
            self.judged.places[places],
            _NEAREST,
        )
        importance_of = {} if importance is None else importance["of"]
        drawn = [(block, block.drawn(importance_of)) for block in self.blocks]
        shown = [
            self._example(heading, int(i), neighbours, training, drawn)
            for (heading, i), neighbours in zip(chosen.items(), found, strict=True)
        ]
        projected = [b for b, axes in drawn if len(axes) < b.block.dim and not b.rotating]
        return {
            "examples": shown,
            "drawn": bool(drawn),
            "projected": bool(projected),
            "ranked": all(block.is_ranked(importance_of) for block in projected),
            "thinned": pictures.MOST_ATOMS if any(e["thinned"] for e in shown) else 0,
        }

    def _example(
        self,
        heading: str,
        i: int,
        neighbours: list[Neighbour],
        training: Training,
        drawn: list[tuple[CloudBlock, list[int]]],
    ) -> dict[str, Any]:
        names = [self.names[i], *(self.training_names[found.place] for found in neighbours)]
        objects = [self.rows[[i]], *(training.rows[[found.place]] for found in neighbours)]
        values = [self._values_of(i), *(self._trained(training, f.place) for f in neighbours)]
        covariates = [self._covariates(rows) for rows in objects]
        distances = ["", *(f"{found.distance:.2f}" for found in neighbours)]
        galleries, thinned = [], False
        for block, axes in drawn:
            shown = [block.atoms(drawn_rows(self.model, rows)[0]) for rows in objects]
            points = [(atoms[:, axes], weights) for atoms, weights in shown]
            thinned |= len(axes) > 1 and any(len(w) > pictures.MOST_ATOMS for _, w in shown)
            images = pictures.clouds(points, [block.coordinates[axis] for axis in axes])
            galleries.append(
                {"name": block.name, "pictures": list(zip(names, images, strict=True))}
            )
        return {
            "heading": heading,
            "name": self.names[i],
            "sentence": self._sentence(i, neighbours),
            "columns": [*self._value_columns(), *covariates[0]],
            "rows": [
                {"name": name, "distance": distance, "values": [*value, *other.values()]}
                for name, distance, value, other in zip(
                    names, distances, values, covariates, strict=True
                )
            ],
            "galleries": galleries,
            "thinned": thinned,
        }

    def _value_columns(self) -> list[str]:
        if isinstance(self.judged.outputs[0], Classification):
            return ["class"]
        return [label or "measured" for label in self.labels]

    def _values_of(self, i: int) -> list[str]:
        return [
            output.classes[output.truth[i]]
            if isinstance(output, Classification)
            else _writer(output)(output.truth[i])
            for output in self.judged.outputs
        ]

    def _trained(self, training: Training, place: int) -> list[str]:
        return [
            output.classes[int(value)]
            if isinstance(output, Classification)
            else _writer(output)(value)
            for output, value in zip(self.judged.outputs, training.values[place], strict=True)
        ]

    def _covariates(self, row: Tensor) -> dict[str, str]:
        """Return the numbers and categories in a row of mixed inputs."""
        if self.model.encoding is None:
            return {}
        found = {}
        for part in MixedInputs.unpack(row, self.model.encoding).blocks.values():
            if isinstance(part, Covariates):
                for name, (value,) in part.columns.items():
                    numeric = isinstance(value, Tensor)
                    found[name] = number(float(value)) if numeric else str(value)
        return found

    def _sentence(self, i: int, neighbours: list[Neighbour]) -> str:
        """Say what was predicted, and how near the nearest training object is."""
        worst = self.judged.worst_output(i)
        output = self.judged.outputs[worst]
        if isinstance(output, Classification):
            said = (
                f"The model held “{output.classes[output.predicted[i]]}” most probable, with "
                f"{percent(output.probabilities[i].max())}. "
            )
            said += (
                "This class was observed."
                if output.predicted[i] == output.truth[i]
                else f"It gave “{output.classes[output.truth[i]]}”, which was observed, "
                f"{percent(output.of_truth[i])}."
            )
        else:
            half, write = output.half_width(self.level)[i], _writer(output)
            called = self.labels[worst] or f"Output {worst + 1}"
            said = f"{called}: predicted" if len(self.judged.outputs) > 1 else "Predicted"
            said += (
                f" {write(output.mean[i])}, with a {percent_level(self.level)} interval from "
                f"{write(output.mean[i] - half)} to {write(output.mean[i] + half)}; measured "
                f"{write(output.truth[i])}."
            )
        if neighbours and neighbours[0].distance > _ALIKE:
            said += (
                f" Even the nearest training object is at a distance of {neighbours[0].distance:.2f}, "
                "further away than two training objects picked at random are on average."
            )
        return said
