"""Run all benchmarks one after the other: ``python -m benchmarks [--quick] [--json FILE]``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from benchmarks import harness

SCRIPTS = (
    "slice_accuracy",
    "sliced_wasserstein_gram",
    "fit_speed",
    "t_batch_speed",
    "sinkhorn_potentials",
    "reference_learning",
    "mmd_gram",
    "distance_comparison",
    "digits_machines",
    "image_classification",
    "sampling_noise",
    "airfoil_search",
)


def main(arguments: Sequence[str] | None = None) -> dict[str, list[harness.Row]]:
    """Run every script with the same options."""
    options = harness.parse(__doc__, arguments)
    print(harness.header(options))
    results = {}
    for name in SCRIPTS:
        script = importlib.import_module(f"benchmarks.{name}")
        results[name] = script.run(options)
        harness.show(name, script.__doc__, results[name], options)
    return results


if __name__ == "__main__":
    main()
