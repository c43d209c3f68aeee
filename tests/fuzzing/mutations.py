"""Changes of the content of files: accidents, and the parts of forgeries."""

import copy
import hashlib
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

_START, _DIGEST = 28, 32
# What stands in the place of any value of a header.
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        3,
        7,
        64,
        1000,
        65_537,
        10**6,
        10**8,
        2**31,
        2**40,
        2**63,
        10**30,
    ),
    *(0.0, -0.5, 1e-300, 1e300, float("inf"), float("nan"), "", "os.system", "gpytorch.RBFKernel"),
    *(
        "<U100000000",
        "|O",
        "float64",
        "clouds",
        [],
        {},
        [0],
        [10**5, 10**5],
        [3, 10**9],
        [-1],
        [[]],
    ),
    *({"size": [10**9]}, {"size": [30_000, 30_000]}, {"expanded": [0, [10**9, 3]]}, {"tensor": 0}),
    *({"object": 0}, {"tensor": 10**6}, {"function": "exp"}, {"tuple": []}, {"a": 1, "b": 2}),
)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Content after an accident: cut off, bits flipped, bytes lost, written twice or overwritten."""
    size = len(content)
    place = rng.randrange(size) if rng.random() < 0.5 else min(rng.randrange(400), size - 1)
    if rng.random() < 0.2:
        place = max(0, size - 1 - rng.randrange(100))
    span = min(rng.choice([1, 1, 2, 8, 100]), size - place)
    match rng.choice(["cut", "flip", "flip", "lose", "repeat", "overwrite", "zero", "append"]):
        case "cut":
            return content[:place]
        case "flip":
            flipped = bytes([content[place] ^ (1 << rng.randrange(8))])
            return content[:place] + flipped + content[place + 1 :]
        case "lose":
            return content[:place] + content[place + span :]
        case "repeat":
            return content[: place + span] + content[place:]
        case "overwrite":
            return content[:place] + rng.randbytes(span) + content[place + span :]
        case "zero":
            return content[:place] + bytes(span) + content[place + span :]
    return content + rng.randbytes(span)


def header_of(content: bytes) -> dict[str, Any]:
    """Header of a sealed file: a saved model, or a checkpoint of a fit."""
    length = int.from_bytes(content[20:_START], "little")
    header: dict[str, Any] = json.loads(content[_START : _START + length])
    return header


def resealed(content: bytes, header: Any, data: bytes | None = None) -> bytes:
    """The file with another header, or other data, and a digest that matches."""
    data = numbers_of(content) if data is None else data
    text = json.dumps(header).encode()
    whole = _START + len(text) + len(data) + _DIGEST
    frame = content[:12] + whole.to_bytes(8, "little") + len(text).to_bytes(8, "little")
    sealed = frame + text + data
    return sealed + hashlib.sha256(sealed).digest()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value in nested lists and dictionaries: the container and the key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def one_of(rng: random.Random) -> Any:
    """A value of any kind."""
    return copy.deepcopy(rng.choice(_VALUES))


def changed(tree: Any, rng: random.Random) -> None:
    """Change a value, or a name, anywhere in nested lists and dictionaries."""
    found = list(places(tree))
    if not found:
        return
    container, key = rng.choice(found)
    match rng.choice(["value"] * 3 + ["number", "swap", "copy", "lose", "repeat", "name"]):
        case "value":
            container[key] = one_of(rng)
        case "number":
            numbers = [(c, k) for c, k in found if type(c[k]) in (int, float)]
            if numbers:
                container, key = rng.choice(numbers)
                factor = rng.choice([-1, 0, 2, 10, 1000, 10**6, 10**9])
                container[key] = container[key] * factor + rng.choice([-1, 0, 1])
        case "swap":
            other, name = rng.choice(found)
            container[key], other[name] = copy.deepcopy((other[name], container[key]))
        case "copy":
            other, name = rng.choice(found)
            container[key] = copy.deepcopy(other[name])
        case "lose":
            del container[key]
        case "repeat" if isinstance(container, list):
            container[key:key] = [container[key]] * rng.choice([1, 2, 50])
        case "name" if isinstance(container, dict):
            container[rng.choice([*container, "extra"])] = container.pop(key)


def numbers_of(content: bytes) -> bytes:
    """The bytes of the tensors of a sealed file."""
    return content[_START + int.from_bytes(content[20:_START], "little") : -_DIGEST]


def overwritten(numbers: bytes, rng: random.Random) -> bytes:
    """Numbers of which some are overwritten by special ones."""
    data = bytearray(numbers)
    special = [b"\0" * 8, b"\xff" * 8, b"\0\0\0\0\0\0\xf0\x7f", b"\0\0\0\0\0\0\xf0\xff"]
    special += [b"\1" + b"\0" * 7, b"\xff" * 7 + b"\x7f", rng.randbytes(8)]
    special += [np.float64(number).tobytes() for number in (1, -1, 1e9, -1e9, 1e300, 1e-300)]
    for _ in range(rng.choice([1, 5, 100])):
        place = 8 * rng.randrange(max(1, len(data) // 8))
        data[place : place + 8] = rng.choice(special)
    return bytes(data[: len(numbers)])
