"""Peers that learn features of atoms: DeepSets, and attention that pools them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.league.scores import Fold, Prediction, Probabilities, conformal
from benchmarks.league.sets import Array
from benchmarks.league.tables import splitter

_WIDTH, _BATCH, _RATE, _DECAY = 64, 32, 2e-3, 1e-4
_NETWORKS, _EPOCHS, _PATIENCE = 5, 100, 15
# A step of training reads at most so many atoms of a bag, at random.
_ATOMS = 64


class Network(nn.Module):
    """A perceptron of atoms, a mean over the bag, and a perceptron of it and the log size.

    Args:
        dim: Number of columns.
        outputs: Number of outputs.
        attention: Whether the mean has learned weights, by the gated attention of Ilse et al. (2018).
    """

    def __init__(self, dim: int, outputs: int, *, attention: bool) -> None:
        super().__init__()
        width = _WIDTH
        self.atoms = nn.Sequential(
            nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.gates = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.weigh = nn.Linear(width, 1) if attention else None
        self.bag = nn.Sequential(
            nn.Linear(width + 1, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, outputs)
        )

    def forward(self, atoms: Tensor, there: Tensor, size: Tensor) -> Tensor:
        """Return outputs of ``N x n x d`` atoms, of which some are there, of bags of log size."""
        features = self.atoms(atoms)
        scores = torch.zeros_like(there, dtype=atoms.dtype)
        if self.weigh is not None:
            gates = self.gates[0](features).tanh() * self.gates[1](features).sigmoid()
            scores = self.weigh(gates).squeeze(-1)
        weights = scores.masked_fill(~there, -torch.inf).softmax(-1)
        pooled = (weights.unsqueeze(-1) * features).sum(-2)
        return self.bag(torch.cat([pooled, size.unsqueeze(-1)], -1))


def padded(bags: list[Array], most: int | None, rng: np.random.Generator) -> Any:
    """Return atoms, at most so many of a bag, which of them are there, and log sizes."""
    some = [
        bag if most is None or len(bag) <= most else rng.permutation(bag)[:most] for bag in bags
    ]
    atoms = torch.zeros(len(bags), max(map(len, some)), bags[0].shape[1])
    there = torch.zeros(atoms.shape[:2], dtype=torch.bool)
    for k, bag in enumerate(some):
        atoms[k, : len(bag)] = torch.from_numpy(bag)
        there[k, : len(bag)] = True
    return atoms, there, torch.tensor([np.log(len(bag)) for bag in bags]).float()


def trained(network: Network, bags: list[Array], y: Tensor, held: tuple[Any, Tensor]) -> Network:
    """Train until the loss of held-out bags has not fallen for some epochs; its best state."""
    loss: Any = nn.functional.mse_loss if y.is_floating_point() else nn.functional.cross_entropy
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    rng = np.random.default_rng(int(torch.randint(2**31, ())))
    best, state, waited = float("inf"), network.state_dict(), 0
    for _ in range(_EPOCHS):
        network.train()
        for part in torch.from_numpy(rng.permutation(len(bags))).split(_BATCH):
            optimizer.zero_grad()
            found = network(*padded([bags[i] for i in part], _ATOMS, rng))
            loss(found.squeeze(-1), y[part]).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            value = float(loss(network(*held[0]).squeeze(-1), held[1]))
        waited += 1
        if value < best:
            best, state, waited = value, copy.deepcopy(network.state_dict()), 0
        if waited >= _PATIENCE:
            break
    network.load_state_dict(state)
    return network.eval()


def pooled(fold: Fold, *, attention: bool) -> Prediction:
    """Average networks of different seeds, each stopped early by another fifth of the training bags."""
    train, test = fold.bags()
    rng = np.random.default_rng(fold.seed)
    raw = fold.y
    mean, unit = (0.0, 1.0) if fold.labelled else (float(raw.mean()), float(raw.std()))
    y = torch.from_numpy(raw) if fold.labelled else torch.from_numpy((raw - mean) / unit).float()
    outputs = len(np.unique(raw)) if fold.labelled else 1
    new, found, held_out = padded(test, None, rng), [], np.empty(len(raw))
    for seed, (index, left) in enumerate(splitter(fold, _NETWORKS).split(raw, raw)):
        torch.manual_seed(_NETWORKS * fold.seed + seed)
        network = Network(train[0].shape[1], outputs, attention=attention)
        held = padded([train[i] for i in left], None, rng)
        trained(network, [train[i] for i in index], y[index], (held, y[left]))
        with torch.no_grad():
            found.append(network(*new))
            if not fold.labelled:
                held_out[left] = network(*held).squeeze(-1).numpy()
    values = torch.stack(found).double()
    if fold.labelled:
        return Probabilities(values.softmax(-1).mean(0).numpy())
    average = values.mean(0).squeeze(-1).numpy()
    return conformal(mean + unit * average, raw - mean - unit * held_out)


def deep_sets(fold: Fold) -> Prediction:
    """Means of features over the bag (Zaheer et al. 2017)."""
    return pooled(fold, attention=False)


def attention(fold: Fold) -> Prediction:
    """Means of features with learned weights (Ilse et al. 2018)."""
    return pooled(fold, attention=True)
