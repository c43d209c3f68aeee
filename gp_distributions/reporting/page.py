"""The page of a report: what is shown, and how it becomes HTML."""

from __future__ import annotations

import os
from collections.abc import Sequence
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
from gp_distributions.reporting.clouds import CloudBlock, Importance, cloud_blocks, drawn_rows
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
)
from gp_distributions.sensitivities import gradients_at
from gp_distributions.writing import written_whole

# Numbers of rows of the table of errors, and of training objects beside each example.
_WORST, _NEAREST = 10, 3
# Relevance needs at least so many training objects. Sensitivities are means over at most so many.
_FEWEST_RELEVANT, _MOST_SENSITIVE = 4, 100


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
        advice = (
            " Pass the model of an estimator, model_; of a pipeline, that of its last step, "
            "pipeline[-1].model_, and the inputs that it sees, pipeline[:-1].transform(X)."
        ) * hasattr(model, "get_params")
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
    page = _Page(single, rows, judged, training, blocks, getattr(X, "labels", None))
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
        labels=labelled,
        importance=importance,
        **page.summary(labelled, level),
        **page.examples({} if importance is None else importance["of"]),
        model=[
            *weighted(model),
            *described(single, blocks, training, labelled),
            ("Software", versions()),
        ],
    )
    with written_whole(path) as file:
        file.write(text.encode())
    return path


def _numbered(noun: str, count: int) -> list[str]:
    return [f"{noun} {i}" for i in range(count)]


class _Page:
    """What a report shows."""

    def __init__(
        self,
        model: Model,
        rows: Tensor,
        judged: Judged,
        training: Training | None,
        blocks: list[CloudBlock],
        given: Sequence[Any] | npt.NDArray[Any] | None,
    ) -> None:
        self.model, self.rows, self.judged = model, rows, judged
        self.training, self.blocks = training, blocks
        self.classify = isinstance(model, Classifier)
        known = None if training is None else training.labels
        self.names = _numbered("object", len(rows)) if given is None else list(map(str, given))
        self.trained = [] if known is None else list(map(str, known))
        if training is not None and known is None:
            self.trained = _numbered("training object", len(training.rows))
        for i, place in enumerate(judged.places):
            if place >= 0 and known is None:
                self.trained[place] = self.names[i]
            elif place >= 0 and given is None:
                self.names[i] = self.trained[place]

    def summary(self, labels: Sequence[str], level: float) -> dict[str, Any]:
        """Return what the report says of all predictions."""
        found = []
        for output, label in zip(self.judged.outputs, labels, strict=True):
            if isinstance(output, Classification):
                hits, levels = output.hits(), output.bins()
                images = pictures.probabilities(output), pictures.reliability(output)
            else:
                hits = output.coverage(level)
                levels = [output.coverage(each) for each in sorted({*LEVELS, level})]
                images = pictures.predictions(output, label, level), pictures.coverage(output)
            worst = np.argsort(-output.badness, kind="stable")[:_WORST].tolist()
            found.append(
                {"scores": output, "hits": hits, "levels": levels, "images": images, "worst": worst}
            )
        return {
            "classification": self.classify,
            "learned": "data" if self.training is None else f"{len(self.training.rows)} objects",
            "checked": self.judged.checked,
            "seen": int((self.judged.places >= 0).sum()),
            "names": self.names,
            "outputs": found,
        }

    def importance(self, given: Relevance | bool, names: Names | None) -> dict[str, Any] | None:
        """Return how much inputs matter: relevance if it can be computed, else sensitivities."""
        model = self.model
        if given is True and isinstance(model, DistributionGP) and not self.classify:
            enough = self.training is not None and len(self.training.rows) >= _FEWEST_RELEVANT
            given = enough and relevance(model, names=names)
        if given is False:
            return None
        ranked = isinstance(given, Relevance)
        found = (
            {(entry.block, entry.coordinate): entry.loss for entry in given.entries}
            if isinstance(given, Relevance)
            else self._sensitivities(names)
        )
        if not found:
            return None
        whole = "" if model.encoding else "whole bag"
        called = [
            name or whole or block if block == "X" else ": ".join(filter(None, (block, name)))
            for block, name in found
        ]
        values = list(found.values())
        unit = "change of scores" if self.classify else "change of predictions"
        return {
            "relevance": ranked,
            "picture": pictures.relevances(given, whole)
            if isinstance(given, Relevance)
            else pictures.sensitivities(called, values, unit),
            "most": called[int(np.argmax(values))],
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

    def examples(self, importance: Importance) -> dict[str, Any]:
        """Return some objects beside their nearest training objects."""
        training, badness = self.training, self.judged.badness
        if training is None:
            return {"examples": []}
        order = np.argsort(-badness.max(0), kind="stable").tolist()
        chosen = [order[0], order[len(order) // 2]]
        found = nearest(
            self.model, self.rows[chosen], training.rows, self.judged.places[chosen], _NEAREST
        )
        drawn = [(block, block.drawn(importance)) for block in self.blocks]
        projected = [b for b, axes in drawn if len(axes) < b.block.dim and not b.rotating]
        return {
            "examples": [
                {
                    "number": i,
                    "output": int(badness[:, i].argmax()),
                    "neighbours": neighbours,
                    **self._objects(i, neighbours, training, drawn),
                }
                for i, neighbours in zip(chosen, found, strict=True)
            ],
            "drawn": bool(drawn),
            "projected": bool(projected),
            "ranked": all(block.is_ranked(importance) for block in projected),
            "most_atoms": pictures.MOST_ATOMS if any(len(a) > 1 for _, a in drawn) else 0,
        }

    def _objects(
        self,
        i: int,
        neighbours: list[Neighbour],
        training: Training,
        drawn: list[tuple[CloudBlock, list[int]]],
    ) -> dict[str, Any]:
        """Return the values and the clouds of an object and of its neighbours."""
        outputs = self.judged.outputs
        objects = [(self.names[i], self.rows[i], [output.truth[i] for output in outputs])]
        for place in (found.place for found in neighbours):
            objects.append((self.trained[place], training.rows[place], training.values[place]))
        galleries = []
        for block, axes in drawn:
            atoms = [block.atoms(drawn_rows(self.model, row[None])[0]) for _, row, _ in objects]
            images = pictures.clouds(
                [(points[:, axes], weights) for points, weights in atoms],
                [block.coordinates[axis] for axis in axes],
            )
            galleries.append((block.name, images))
        return {
            "names": [name for name, _, _ in objects],
            "values": [
                [output.write(value) for output, value in zip(outputs, values, strict=True)]
                for _, _, values in objects
            ],
            "covariates": [self._covariates(row) for _, row, _ in objects],
            "galleries": galleries,
        }

    def _covariates(self, row: Tensor) -> dict[str, str]:
        """Return the numbers and categories in a row of mixed inputs."""
        if self.model.encoding is None:
            return {}
        return {
            name: number(value.item()) if isinstance(value, Tensor) else str(value)
            for part in MixedInputs.unpack(row[None], self.model.encoding).blocks.values()
            if isinstance(part, Covariates)
            for name, (value,) in part.columns.items()
        }
