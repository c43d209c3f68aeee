"""The random sequence of candidates with which a mixed search begins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from botorch.utils.sampling import draw_sobol_samples

from gp_distributions.bayesopt.records import candidate_key
from gp_distributions.bayesopt.search import Box, Part
from gp_distributions.bayesopt.seeding import derived_seed


def initial_candidates(parts: Mapping[str, Part], count: int, seed: int) -> list[dict[str, Any]]:
    """Return the first candidates of a random sequence without repetition.

    Parts that are vectors between bounds follow one scrambled Sobol sequence; sequences of their own
    would be correlated. Other parts follow random sequences of their own, which start anew at their
    ends. After the longest of them, the combinations that are left follow.

    Args:
        parts: The parts by name.
        count: Number of candidates.
        seed: Random seed.

    Returns:
        Dictionaries of plain data, fewer than ``count`` only if there are no more candidates.
    """
    found = _vectors(parts, count, seed)
    lengths: list[int] = [count] if found else []
    for place, (name, part) in enumerate(parts.items()):
        if name in found:
            continue
        sequence = part.initial(count, derived_seed(seed, place, 0))
        lengths.append(len(sequence))
        cycles = itertools.count(1)
        while len(sequence) < count:
            again = part.initial(count, derived_seed(seed, place, next(cycles)))
            sequence = [*sequence, *again[: count - len(sequence)]]
        found[name] = sequence
    longest = max(lengths)
    zipped = zip(*(found[name] for name in parts), strict=True)
    joint = [dict(zip(parts, values, strict=True)) for values in zipped]
    if longest == count:
        return joint  # the longest sequence does not repeat itself
    joint = joint[:longest]
    seen = set(map(candidate_key, joint))
    every = [p.initial(count, derived_seed(seed, i, 0)) for i, p in enumerate(parts.values())]
    rest = (dict(zip(parts, values, strict=True)) for values in itertools.product(*every))
    new = (candidate for candidate in rest if candidate_key(candidate) not in seen)
    return [*joint, *itertools.islice(new, count - longest)]


def _vectors(parts: Mapping[str, Part], count: int, seed: int) -> dict[str, list[Any]]:
    """Returns the first candidates of all parts that are vectors between bounds."""
    boxes = {name: part for name, part in parts.items() if isinstance(part, Box)}
    if not boxes:
        return {}
    bounds = torch.cat([box.bounds.to("cpu", torch.float64) for box in boxes.values()], dim=-1)
    drawn = draw_sobol_samples(bounds, count, 1, seed=seed).squeeze(1)
    sizes = [box.bounds.shape[-1] for box in boxes.values()]
    split = zip(boxes.items(), drawn.split(sizes, dim=-1), strict=True)
    return {name: box.read_inputs(columns) for (name, box), columns in split}
