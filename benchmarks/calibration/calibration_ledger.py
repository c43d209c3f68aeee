r"""Where do the intervals of the models hold, where do they not, and why?

Tasks of regression, real data first:

- ``airfoils``: lift to drag, lift, drag and moment coefficients (64 points at equal arc length; 1874
  outlines); ``turned airfoils``: the same outlines in unknown pose.
- ``cells``: the logarithm of the circularity of 650 outlines of cells in unknown pose.
- ``molecules``: what a line in the numbers of atoms leaves of the energies of QM9, and the dipole
  moments, from pairs of atoms; ``molecules and counts``: the energies from both.
- ``digits``: the ink of an image from its distribution; ``textures``: the contrast of a relit patch of
  32 x 32 pixels, from its co-occurrence matrix.
- ``patients``, ``solids``, ``markers``, ``modes`` and ``entropy``: simulated data of other benchmarks.
- toys, bags of N(m, s^2 I) in the plane, with :math:`f = \log s + m_1 - m_2^2`: ``normal noise`` of
  deviation .1; ``heavy tails``, Student's t noise with 2 degrees of freedom; ``contaminated``, one
  target in 20 with noise of deviation 5; ``heteroscedastic``, noise that grows with f; ``counts``, a
  Poisson variable with mean exp(f + 2); ``zeros and ones``, with probabilities that rise with f; ``no
  noise`` with bags of 5, of 5000 and of 5 to 5000 points; ``shifted``: test bags that are wider than
  all training bags, and test bags of 5 points after training bags of 500. Bags have 50 points where
  nothing is said.

Models, each with the profile Matern 5/2 and the sliced Wasserstein distance, in unknown pose
``RigidSlicedWasserstein``, beside covariates ``mixed_kernel``: ``fit``, the default; ``integrate``
(``integrate_hyperparameters``); ``sparse``, with a fifth of the clouds inducing, 20 to 100 of them;
``sampling noise``, for samples of different sizes; ``scaled`` (``ScaledDistance``). The default meets
every task at ``T`` = 15, 60, 200 and 600 as far as the data allow, and one task each at 1500 and 2000;
``sparse`` at 200, 600 and 2000, ``sampling noise`` where the sizes of bags differ at 15, 60 and 200; the
others meet each task at one size or two. Exact and sparse classifiers (``fit``) predict labels of cells,
digits and textures. Test objects whose label no training object has are left out. Draws of one data set
overlap, so ``targets`` counts objects more than once.

Columns of regression: ``cover50``, ``cover80`` and ``cover95`` are the shares of test targets within
central intervals, and ``error`` the standard error of the last: the larger one of that between draws
and that of independent targets. ``log_density`` is a mean over test targets, in nats, and ``gain`` is
this mean less that of the normal distribution with the mean and deviation of the training targets.
``width`` of 95% intervals and ``rmse`` are relative to those of this distribution. ``kurtosis`` is the
excess kurtosis of standardised errors. ``conformal`` is ``cover95`` with ``ConformalCorrection`` from
100 held-out objects (or those left: at least 20), with its standard error and relative width, and
``jackknife`` is the same from leave-one-out predictions of the training clouds. ``place`` compares
``cover95`` with .90 to .98: ``below`` and ``above`` are further outside than two errors, and ``low``
and ``high`` are outside by less. ``why`` explains what is outside; another model is a cause only if its
coverage is nearer by more than ``error``, on the same draws. ``unexplained`` counts rows ``below`` or
``above`` without a cause; causes were found after rows of other seeds had been seen, so that this is no
test of them. ``chance`` counts rows ``low`` or ``high`` without one, which two errors explain. The rows
``not shifted`` and ``shifted`` average over these tasks, and ``conformal_outside`` counts rows where
``conformal`` is outside by more than two errors.

Columns of classification: ``accuracy``, the share ``base`` of the largest class, the mean log
probability ``log_score`` of labels beside that of the class frequencies of the training labels, the
mean ``confidence``, which is the largest probability, and the expected calibration error ``ece`` of the
largest probability over ten bins of equal counts. ``log_score_bare`` and ``ece_bare`` are those of
``fit(temperature=1.0)``. ``ece_exact`` and ``ece_exact_95`` are the mean and the 95%
quantile of the errors of labels drawn from the predicted probabilities. Where ``ece`` exceeds the
latter, ``place`` is ``timid`` if the confidence is below the accuracy, and ``bold`` otherwise.

Rows are kept in ``build/benchmarks`` as they are measured, so that a run that was stopped goes on where
it was. The seeds of draws are 2200, 2201, ...; settings were chosen, and causes found, on the seeds 900
and above and on 2100 to 2105. The line in the energies of molecules is fitted to all of them. Tasks
whose packages are not installed are left out: ``pip install --no-deps geomstats qm9pack scikit-image``.

    python -m benchmarks.calibration.calibration_ledger [--quick]
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import gp_distributions
from benchmarks.calibration import ledger_tasks
from benchmarks.calibration.ledger_causes import cause, remark
from benchmarks.calibration.ledger_measures import MODELS, Entry, measured
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import Target, limit, number

LONG = True
SEEDS = 1
FIRST_SEED, QUICK_SEED = 2200, 900
LOW, HIGH = 0.90, 0.98
ROWS = Path(__file__).parents[2] / "build" / "benchmarks" / "calibration_ledger.jsonl"
# Numbers of draws at each size of training data.
DEFAULT = {15: 6, 60: 3, 200: 3, 600: 1}
OTHERS = {
    "integrate": {15: 6, 60: 3},
    "sampling noise": {15: 6, 60: 3, 200: 3},
    "sparse": {200: 3, 600: 3},
    "scaled": {60: 3},
}
CLASSIFIERS = {"exact": {60: 3, 200: 3}, "sparse": {200: 3}}
LARGE = {"normal noise": 2000, "airfoils, CL/CD": 1500}
SPARSE = {2000: 1}


def few(rows: Sequence[Row]) -> dict[str, tuple[Row, Row]]:
    """Return the rows of ``integrate`` and of ``fit`` with 15 objects, of tasks without a shift."""
    by = {(row["model"], row["task"]): row for row in rows if row.get("T") == 15 and "width" in row}
    tasks = [str(task) for model, task in by if model == "integrate"]
    pairs = {task: (by["integrate", task], by["fit", task]) for task in tasks}
    return {task: pair for task, pair in pairs.items() if not task.startswith("shifted")}


def densities(rows: Sequence[Row]) -> tuple[str, bool]:
    """Return the mean difference of negative log densities with 15 objects, and the largest."""
    found = {
        task: number(fit, "log_density") - number(ours, "log_density")
        for task, (ours, fit) in few(rows).items()
    }
    mean, worst = statistics.fmean(found.values()), max(found, key=found.__getitem__)
    figure = f"{mean:.3f}, {found[worst]:.3f} ({worst})"
    return figure, mean < 0 and found[worst] <= 0.05


def coverage(rows: Sequence[Row]) -> tuple[str, bool]:
    """Return the mean coverage of ``integrate`` with 15 objects."""
    mean = statistics.fmean(number(ours, "cover95") for ours, _ in few(rows).values())
    return f"{mean:.3f}", 0.90 <= mean <= 0.98


TARGETS = (
    Target("tasks without a shift, T = 15, integrate: coverage of 95%", "0.90 to 0.98", coverage),
    Target(
        "the same: negative log density less that of fit, mean and largest of a task",
        "< 0, <= 0.05",
        densities,
        "The prior of the noise makes almost none unlikely, as of bags of 5000 and the coefficients of "
        "airfoils; of patients, unknown.",
    ),
    limit(
        "calibration ledger: entries below or above .90 to .98 without a cause",
        "<= 0",
        "unexplained",
        name="all",
        asked=True,
    ),
    limit(
        "calibration ledger, no shift: entries with corrections outside .90 to .98 by over two errors",
        "<= 0",
        "conformal_outside",
        name="not shifted",
        asked=True,
    ),
)


def entries(*, quick: bool) -> Iterator[Entry]:
    """Yield what to measure, the default model first."""
    tasks = [name for name, task in ledger_tasks.REGRESSION.items() if task.available]

    def others(sizes: Mapping[str, Mapping[int, int]]) -> Iterator[Entry]:
        for model, counts in sizes.items():
            for train, draws in counts.items():
                yield from (Entry(name, model, train, draws) for name in tasks)

    if quick:
        for model in MODELS:
            yield Entry("normal noise", model, 20, 1)
        yield Entry("heavy tails", "fit", 30, 1)
        yield Entry("digits", "exact", 20, 1, labels=True)
        return
    yield from others({"fit": DEFAULT})
    for name, task in ledger_tasks.LABELS.items():
        if task.available:
            for model, sizes in CLASSIFIERS.items():
                yield from (Entry(name, model, *size, labels=True) for size in sizes.items())
    yield from others(OTHERS)
    yield from (Entry(name, "fit", size, 1) for name, size in LARGE.items() if name in tasks)
    yield from others({"sparse": SPARSE})


def kept(file: Path, script: str) -> dict[str, Row | None]:
    """Return the rows that this version of the package has measured, by their entries."""
    if not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {line["entry"]: line["row"] for line in lines if line["script"] == script}


def version() -> str:
    """Return the version of the package; remove the file of rows to measure them anew within one."""
    return gp_distributions.__version__


def run(options: Options) -> list[Row]:
    """Return all rows, those outside .90 to .98, and counts."""
    seed, script = QUICK_SEED if options.quick else FIRST_SEED, version()
    rows = {} if options.quick else kept(ROWS, script)
    todo = {f"{entry} from {seed}": entry for entry in entries(quick=options.quick)}
    for key in progress([key for key in todo if key not in rows]):
        rows[key] = measured(todo[key], seed, quick=options.quick)
        if not options.quick:
            ROWS.parent.mkdir(parents=True, exist_ok=True)
            with ROWS.open("a", encoding="utf-8") as file:
                line = {"script": script, "entry": key, "row": rows[key]}
                file.write(json.dumps(line) + "\n")
    return assembled([row for key in todo if (row := rows[key]) is not None])


def assembled(rows: list[Row]) -> list[Row]:
    """Judge rows, explain those outside, and count."""
    numbers = [row | {"place": place(row)} for row in rows if "cover95" in row]
    labels = [row | {"place": place_of_labels(row)} for row in rows if "ece" in row]
    places, of_labels = ([row["place"] for row in part] for part in (numbers, labels))
    shown = ("task", "model", "T", "cover95", "error", "kurtosis", "conformal", "conformal_error")
    outside: list[Row] = []
    chance = 0
    for row in numbers:
        if row["place"] != "inside":
            why = cause(row, numbers)
            chance += why is None and row["place"] in ("low", "high")
            whole = " ".join(filter(None, (why, remark(row)))) or None
            outside.append({key: row[key] for key in (*shown, "place")} | {"why": whole})
    count: Row = {
        "name": "all",
        "tasks": len({row["task"] for row in (*numbers, *labels)}),
        "rows": len(numbers),
        **{name: places.count(name) for name in ("inside", "low", "high", "below", "above")},
        "unexplained": sum(row["why"] is None for row in outside),
        "chance": chance,
        "classifiers": len(labels),
        **{name: of_labels.count(name) for name in ("timid", "bold")},
        "minutes": sum(number(row, "seconds") * number(row, "draws") for row in rows) / 60,
    }
    if labels:
        for name in ("log_score", "log_score_bare", "ece", "ece_bare"):
            count[f"mean_{name}"] = statistics.fmean(number(row, name) for row in labels)
    parts: dict[str, list[Row]] = {"not shifted": [], "shifted": []}
    for row in numbers:
        parts["shifted" if str(row["task"]).startswith("shifted") else "not shifted"].append(row)
    averaged = [averages(name, part) for name, part in parts.items() if part]
    return [*numbers, *outside, *labels, *averaged, count]


def averages(name: str, rows: Sequence[Row]) -> Row:
    """Return coverage with and without corrections over rows."""
    found: Row = {"name": name, "rows": len(rows)}
    for key in ("cover95", "conformal", "jackknife"):
        if part := [number(row, key) for row in rows if row[key] is not None]:
            found[key] = statistics.fmean(part)
            found |= {f"lowest_{key}": min(part), f"highest_{key}": max(part)}
    corrected = [row for row in rows if row["conformal"] is not None]
    found["conformal_outside"] = sum(
        position(number(row, "conformal"), number(row, "conformal_error")) in ("below", "above")
        for row in corrected
    )
    return found


def position(cover: float, error: float) -> str:
    """Say where a coverage of 95% intervals lies."""
    if cover < LOW:
        return "below" if cover + 2 * error < LOW else "low"
    if cover > HIGH:
        return "above" if cover - 2 * error > HIGH else "high"
    return "inside"


def place(row: Row) -> str:
    """Say where the coverage of a row lies."""
    return position(number(row, "cover95"), number(row, "error"))


def place_of_labels(row: Row) -> str:
    """Say whether probabilities are further from accuracies than chance explains, and how."""
    if number(row, "ece") <= number(row, "ece_exact_95"):
        return "inside"
    return "timid" if number(row, "confidence") < number(row, "accuracy") else "bold"


if __name__ == "__main__":
    main(run)
