"""Does a model of decoded shapes predict new designs better than a GP on the designs themselves?

Random wings of ten CST weights, between the bounds of ``design_search``, and their ratio of lift to
drag with its gates: 20 to 160 for training and 500 others for testing, ten draws.

- ``shapes``: the default model of a ``DesignSearch``, whose decoder returns 64 points with normals;
- ``points``: the same without normals;
- ``ard``: a GP on designs, Matern 5/2 with a lengthscale for each weight; ``priors``: BoTorch's default,
  a Gaussian kernel with priors.

Columns: the means of R² over draws and, after an underscore, their standard errors. Normals and bounds
were chosen in searches on other seeds; other wings were used while this was written, and these were run
once.

    python -m benchmarks.prediction.wing_designs [--quick]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.metrics import r2_score

import gp_distributions as gd
from benchmarks.draws import Draws
from benchmarks.harness import Options, Row, main, progress
from benchmarks.judging import Rows, Target, find, number
from benchmarks.search.designs import BOUNDS, decode, gated_ratio
from benchmarks.search.searches import on_designs, with_priors

SIZES, TEST, DRAWS = (20, 40, 80, 160), 500, 10


def judge(rows: Rows) -> tuple[str, bool]:
    """Return whether shapes are better from 40 designs than designs."""
    ours, *peers = (number(find(rows, size=40), name) for name in ("shapes", "ard", "priors"))
    return f"{ours:.3f} beside {max(peers):.3f}", ours > max(peers)


TARGETS = (
    Target("40 designs of wings: R² of shapes beside GPs on them", "above both", judge, asked=True),
)


def run(options: Options) -> list[Row]:
    """Return a row for each number of designs."""
    sizes, test, draws = ((8,), 8, 1) if options.quick else (SIZES, TEST, DRAWS)
    found: dict[int, dict[str, list[float]]] = {size: {} for size in sizes}
    for seed in progress(range(draws)):
        uniform = Draws(seed).uniform(sizes[-1] + test, BOUNDS.shape[-1])
        designs = BOUNDS[0] + (BOUNDS[1] - BOUNDS[0]) * uniform
        values = torch.tensor([gated_ratio(design) for design in designs], dtype=torch.float64)
        for size in sizes:
            models: dict[str, Any] = {}
            for name, decoder in (("shapes", decode), ("points", lambda d: decode(d).positions)):
                optimizer = gd.ShapeOptimizer(gd.DesignSearch(gd.Decoder(decoder), BOUNDS))
                for design, value in zip(designs[:size], values.tolist(), strict=False):
                    optimizer.tell(design, value)
                models[name] = optimizer.model()
            for name, make in (("ard", on_designs), ("priors", with_priors)):
                peer = make(designs[:size], values[:size].unsqueeze(-1))
                models[name] = gd.fit(peer, progress=False)
            for name, model in models.items():
                mean, _ = model.predict(designs[-test:])
                score = r2_score(values[-test:], mean.flatten())
                found[size].setdefault(name, []).append(score)
    rows: list[Row] = []
    for size, scores in found.items():
        rows.append({"size": size, **{name: float(np.mean(each)) for name, each in scores.items()}})
        rows[-1] |= {f"{n}_": float(np.std(each) / draws**0.5) for n, each in scores.items()}
    return rows


if __name__ == "__main__":
    main(run)
