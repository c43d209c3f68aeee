"""The memory of the package: rows, and what modules have computed from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gp_distributions.rows.clouds import drop_copies
from gp_distributions.rows.layout import Columns, select_columns
from gp_distributions.rows.tensors import is_tracked

ValueT = TypeVar("ValueT")

# What is computed from each row alone, ``... x N x D``.
_OF_EACH = ("representation", "norms")
_Key: TypeAlias = tuple[Hashable, object, bool]
# Number of sets of rows that a distance remembers.
_CAPACITY = 2
# Attributes of modules that are no settings.
_INTERNAL = {*vars(torch.nn.Module()), "memory", "warm_starts"}


# The version of each tensor that was read, and what was found, as long as the tensor exists.
_read: Any = WeakIdKeyDictionary()


class EmbeddedRows:
    """Rows, and what modules have computed from them.

    The object whose rows they are holds it: a model its training rows, a posterior its test rows. The
    rows must not change while it is held.

    Args:
        rows: A ``batch_shape x N x width`` tensor.
        prepared: Whether many other rows will be compared with these.
        parts: The sets of rows that together are these rows, one after the other, if several hold what
            was computed. Default: the rows themselves.
    """

    def __init__(
        self, rows: Tensor, *, prepared: bool = False, parts: Sequence[EmbeddedRows] = ()
    ) -> None:
        self.rows = rows
        self.prepared = prepared
        self._parts = [*parts]
        # What was computed, by which module, and whether with gradients; with the state of the module.
        self._known: dict[_Key, tuple[Hashable, Any]] = {}
        self._pairs: WeakKeyDictionary[EmbeddedRows, dict[_Key, tuple[Hashable, Any]]]
        self._pairs = WeakKeyDictionary()

    @property
    def parts(self) -> list[EmbeddedRows]:
        """The sets of rows that together are these rows, one after the other."""
        return self._parts or [self]

    def select(self, columns: Columns) -> EmbeddedRows:
        """Return the rows of some columns, which are selected once."""
        if columns is None:
            return self
        return self.derived(
            columns,
            lambda: EmbeddedRows(select_columns(self.rows, columns), prepared=self.prepared),
        )

    def derived(
        self,
        key: Hashable,
        make: Callable[[], ValueT],
        *,
        by: object = None,
        state: Hashable = None,
        beside: EmbeddedRows | None = None,
    ) -> ValueT:
        """Return what ``make`` computes from these rows, which is done once.

        Args:
            key: What is computed.
            make: Function that computes it.
            by: The module that computes it. If it has changed since, it is computed anew.
            state: What else it depends on; the same holds.
            beside: Other rows from which it is computed, too; it is held as long as both exist.
        """
        known = self._known if beside is None else self._pairs.setdefault(beside, {})
        place = key, by, is_tracked(self.rows)
        current = state_of(by), state
        if place in known and known[place][0] == current:
            found: ValueT = known[place][1]
            return found
        value = make()
        # Autograd cannot use what was computed in inference mode.
        if not torch.is_inference_mode_enabled() or self.rows.is_inference():
            known[place] = (state_of(by), state), value
        return value

    def take(self, index: Tensor, rows: Tensor) -> EmbeddedRows:
        """Return some of the rows, with what was computed from each row alone.

        Args:
            index: Numbers of the rows.
            rows: The rows of these numbers.
        """
        taken = EmbeddedRows(rows, prepared=self.prepared)
        for key, (state, value) in self._known.items():
            what, by, _ = key
            if isinstance(value, EmbeddedRows) and by is None:  # some columns, or one output
                part = value.take(index, value.rows.index_select(-2, index))
                taken._known[key] = state, part
            elif what in _OF_EACH:
                taken._known[key] = state, value.index_select(-2, index)
        return taken

    def holds(self, key: Hashable, *, by: object) -> bool:
        """Whether :meth:`derived` need not compute."""
        found = self._known.get((key, by, is_tracked(self.rows)))
        return found is not None and found[0] == (state_of(by), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(EmbeddedRows, prepared=self.prepared), (self.rows,)


Rows: TypeAlias = Tensor | EmbeddedRows


def selected(rows: Rows, columns: Columns) -> Rows:
    """Return some columns of rows, as what the rows are."""
    if isinstance(rows, EmbeddedRows):
        return rows.select(columns)
    return select_columns(rows, columns)


def rows_of(rows: Any) -> Tensor:
    """Return rows as a tensor."""
    found: Tensor = rows.rows if isinstance(rows, EmbeddedRows) else rows
    return found


def embedded(rows: Rows) -> EmbeddedRows:
    """Return rows as an object that holds what is computed from them."""
    return rows if isinstance(rows, EmbeddedRows) else EmbeddedRows(rows)


class RowMemory:
    """The rows that bare GPyTorch and BoTorch models pass to a distance as plain tensors.

    It remembers the sets of rows that were last compared with themselves, until they change. In
    training, such a model passes the same tensor each time, which is known by identity and version. In
    prediction, GPyTorch joins training and test rows anew, and BoTorch repeats the training rows in
    every t-batch: these are known by their content.
    """

    def __init__(self) -> None:
        self._entries: tuple[tuple[Tensor, int, EmbeddedRows], ...] = ()

    def find(self, rows: Tensor) -> EmbeddedRows:
        """Return rows as what holds them, in two parts if only the first of them are remembered."""
        if is_tracked(rows):
            return EmbeddedRows(rows)
        known = [entry for entry in self._entries if _version(entry[0]) == entry[1]]
        for given, _, found in known:
            if given is rows:
                return found
        once = drop_copies(rows.detach())
        for _, _, found in sorted(known, key=lambda entry: -len(entry[2].rows)):
            own, size = found.rows, len(found.rows)
            alike = (once.shape[-1], once.dtype, once.device) == (
                own.shape[-1],
                own.dtype,
                own.device,
            )
            if alike and once.shape[-2] >= size and bool((once[..., :size, :] == own).all()):
                if once.shape[-2] == size:
                    return found
                return EmbeddedRows(once, parts=[found, EmbeddedRows(once[..., size:, :])])
        return EmbeddedRows(once)

    def remember(self, rows: Tensor, found: EmbeddedRows) -> None:
        """Remember a set of rows without batch axes; the oldest is forgotten."""
        if found.rows.dim() == 2 and not torch.is_inference_mode_enabled():
            others = [entry for entry in self._entries if entry[2] is not found]
            self._entries = (*others, (rows, _version(rows), found))[-_CAPACITY:]

    def __reduce__(self) -> tuple[Any, ...]:  # copies begin empty
        return RowMemory, ()


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def state_of(module: Any) -> Hashable:
    """Return a key that is equal for modules that compute the same; ``None`` for ``None``.

    Tensors count by content: parameters are read each time, since GPyTorch sets them without a new
    version; buffers, and tensors that are settings, once for each version. Other settings count by value
    if they are numbers or text, and by identity if they are functions or objects.
    """
    if module is None:
        return None
    if getattr(type(module), "transparent", False):
        return state_of(module.distance)
    settings = [(n, _setting(v)) for n, v in vars(module).items() if n not in _INTERNAL]
    priors = vars(module).get("_priors", {})  # which change no result of the module itself
    parameters = [None if p is None else _value(p) for p in module._parameters.values()]
    buffers = [None if b is None else _content(b) for b in module._buffers.values()]
    parts = [state_of(part) for name, part in module._modules.items() if name not in priors]
    kind: Any = type(module)
    return kind, *settings, *parameters, *buffers, *parts


def _setting(value: Any) -> Hashable:
    if isinstance(value, Tensor):
        return _content(value)
    if isinstance(value, list | tuple):
        return tuple(map(_setting, value))
    # Dictionaries and sets are of GPyTorch.
    return value if isinstance(value, Hashable) else None


def _value(tensor: Tensor) -> Hashable:
    values = hashlib.blake2b(tensor.numpy(force=True).tobytes(), digest_size=16).digest()
    return tensor.dtype, tensor.device, tensor.shape, values


def _content(tensor: Tensor) -> Hashable:
    """Return what tells tensors of other content apart, of which a version is read once."""
    if tensor.is_inference():  # which has no version
        return _value(tensor)
    version, known = _read.get(tensor, (None, None))
    if version != tensor._version:
        known = _value(tensor)
        _read[tensor] = tensor._version, known
    return known
