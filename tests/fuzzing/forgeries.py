"""Forged files of each kind: well-formed, sealed where such files are, with another meaning."""

import contextlib
import copy
import inspect
import io
import json
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fuzzing.mutations import (
    changed,
    header_of,
    numbers_of,
    one_of,
    overwritten,
    resealed,
)

from gp_distributions.saving import description

Forge: TypeAlias = Callable[[bytes, random.Random], bytes]

_SIZES = [-1, 0, 1, 2, 3, 7, 100, 10**4, 10**6, 10**8, 2**31 - 1, 2**40, 2**62, 2**63 - 1]


def model(content: bytes, rng: random.Random) -> bytes:
    """A saved model with one to three changes of its header, or other numbers."""
    header = header_of(content)
    if rng.random() < 0.1:
        return resealed(content, header, overwritten(numbers_of(content), rng))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.1:
            _add_module(header, rng)
        else:
            changed(header, rng)
    return resealed(content, header)


def _add_module(header: dict[str, Any], rng: random.Random) -> None:
    """Add a module of any class, with any arguments, of which others are then made."""
    name, cls = rng.choice(sorted(description._NAMED.items()))
    names = list(inspect.signature(cls).parameters)
    named = {each: one_of(rng) for each in names if rng.random() < 0.6}
    if not isinstance(objects := header.get("objects"), list):
        return
    place = rng.randrange(len(objects) + 1)
    objects.insert(place, {"class": name, "positional": [], "named": named})


def checkpoint(content: bytes, rng: random.Random) -> bytes:
    """A checkpoint of a fit with changes of its header, other numbers, or both."""
    header, data = header_of(content), numbers_of(content)
    if rng.random() < 0.5:
        data = overwritten(data, rng)
    else:
        part = rng.choice([header, header["values"], header["tensors"]])
        for _ in range(rng.choice([1, 1, 2])):
            changed(part, rng)
    return resealed(content, header, data)


def array(content: bytes, rng: random.Random) -> bytes:
    """A ``.npy`` file of another shape, type or order, or with other numbers."""
    found = np.load(io.BytesIO(content))
    shape: Any = list(found.shape)
    dtype: Any = found.dtype.str
    fortran: Any = False
    data = found.tobytes()
    match rng.choice(["shape", "shape", "dtype", "both", "order", "numbers", "text", "values"]):
        case "shape":
            shape = _other_shape(shape, rng)
        case "dtype":
            dtype = rng.choice(_DTYPES)
        case "both":
            shape, dtype = _other_shape(shape, rng), rng.choice(_DTYPES)
        case "order":
            fortran = rng.choice([True, None, 1, "C"])
        case "numbers":
            data = overwritten(data, rng)
        case "text":
            return _npy(rng.choice(_TEXTS), data)
        case "values":
            place = rng.choice(["shape", "descr", "fortran_order", "extra"])
            header = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
            return _npy(repr(header | {place: one_of(rng)}), data)
    text = repr({"descr": dtype, "fortran_order": fortran, "shape": tuple(shape)})
    return _npy(text, data)


_DTYPES: list[Any] = [
    *("|b1", "|i1", "|u1", "<i2", ">i4", "<u4", "<i8", ">i8", "<u8", "<f2", "<f4", ">f8", "<f8"),
    *("<f16", "<c8", "<c16", "|O", "<U1", "<U100000000", "|S0", "|S8", "|V0", "|V8", "<M8[ns]"),
    *("<m8[s]", [("x", "<f8")], [("x", "<f8", (10**6,))], ("<f8", (3,)), "f8,f8", "", None, 8),
]
_TEXTS = [
    *("{}", "[]", "1", "", "{'descr': '<f8'}", "(" * 200 + ")" * 200, "-" * 5000 + "1", "9" * 9000),
    *("10**10**10", "__import__('os').abort()", "{'shape': (1,) * 10**9}", "[" * 60_000, "\0"),
]


def _other_shape(shape: list[int], rng: random.Random) -> list[int]:
    shape = list(shape)
    count = int(np.prod(shape))
    match rng.choice(["axis", "axis", "add", "remove", "reshape", "swap", "empty"]):
        case "axis":
            shape[rng.randrange(len(shape))] = rng.choice(_SIZES)
        case "add":
            shape.insert(rng.randrange(len(shape) + 1), rng.choice(_SIZES))
        case "remove":
            del shape[rng.randrange(len(shape))]
        case "reshape":
            divisors = [n for n in range(1, count + 1) if count % n == 0]
            first = rng.choice(divisors)
            second = rng.choice([n for n in divisors if count // first % n == 0])
            shape = [first, second, count // first // second]
        case "swap":
            rng.shuffle(shape)
        case "empty":  # of any length, without elements
            shape[rng.randrange(len(shape))] = 0
            shape[rng.randrange(len(shape))] = rng.choice(_SIZES)
    return shape


def _npy(text: str, data: bytes) -> bytes:
    """A ``.npy`` file with a header of any text."""
    header = text.encode()
    header += b" " * (-(12 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + data


def records(content: bytes, rng: random.Random) -> bytes:
    """Records of a search with other values, as valid JSON."""
    lines = [json.loads(line) for line in content.splitlines()]
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(lines))
        match rng.choice(["value", "value", "value", "outcome", "copy", "swap", "lose", "line"]):
            case "value":
                holder = [lines[place]]
                changed(holder, rng)
                lines[place : place + 1] = holder
            case "outcome" if isinstance(lines[-1], dict):
                outcome = rng.choice([0, 1, -1e308, 1e308, 1.7e308, 1e-320, 1e200, -0.0, 10**400])
                lines[-1] |= {"outcomes": [outcome], "failure": None}
            case "copy":
                lines += [copy.deepcopy(lines[place])] * rng.choice([1, 3, 100])
            case "swap":
                rng.shuffle(lines)
            case "lose" if len(lines) > 1:
                del lines[place]
            case "line":
                lines[place] = one_of(rng)
    texts = [json.dumps(line) for line in lines]
    if rng.random() < 0.1:
        texts[rng.randrange(len(texts))] = rng.choice(
            ["[" * 10**5, "9" * 10**4, '{"a":1,"a":2}', ""]
        )
    return "".join(f"{text}\n" for text in texts).encode()


def parquet(content: bytes, rng: random.Random) -> bytes:
    """A Parquet file with other columns, or with other numbers in its description."""
    if rng.random() < 0.4:
        return _other_footer(content, rng)
    table = pq.read_table(io.BytesIO(content))
    for _ in range(rng.choice([1, 1, 2])):
        with contextlib.suppress(
            pa.ArrowException, KeyError
        ):  # of types that PyArrow does not handle
            table = _other_table(table, rng)
    out = io.BytesIO()
    options: dict[str, Any] = {
        "compression": rng.choice(["snappy", "none", "zstd", "gzip"]),
        "use_dictionary": rng.choice([True, False]),
        "row_group_size": rng.choice([1, 2, 11, 1000]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "store_schema": rng.choice([True, False]),
    }
    try:
        pq.write_table(table, out, **options)
    except (pa.ArrowException, OSError):  # of types that Parquet does not know
        return content
    return out.getvalue()


_KINDS: list[pa.DataType] = [
    *(pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.string(), pa.large_string()),
    *(pa.bool_(), pa.null(), pa.binary(), pa.date32(), pa.timestamp("ns", "UTC"), pa.duration("s")),
    *(pa.decimal128(38, 9), pa.decimal256(76, 3), pa.list_(pa.float64()), pa.list_(pa.int64(), 2)),
    *(pa.struct([("a", pa.float64())]), pa.map_(pa.string(), pa.int64()), pa.time64("us")),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.float64())),
    *(pa.binary(8), pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), pa.uuid()),
]


def _other_table(table: pa.Table, rng: random.Random) -> pa.Table:
    if not table.num_columns:
        return table
    place = rng.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    match rng.choice(
        ["type", "type", "nulls", "values", "shuffle", "repeat", "drop", "twice", "rows", "schema"]
    ):
        case "type":
            return table.set_column(place, name, _of_kind(column, rng.choice(_KINDS)))
        case "nulls":
            kept = pa.array([rng.random() < 0.5 for _ in range(len(column))])
            values = column.combine_chunks()
            return table.set_column(place, name, pa.compute.if_else(kept, values, None))
        case "values":
            odd: list[Any] = [
                float("nan"),
                float("inf"),
                -float("inf"),
                1e308,
                -1e308,
                5e-324,
                -0.0,
            ]
            values = [rng.choice([rng.choice(odd), 1.0]) for _ in range(len(column))]
            return table.set_column(place, name, pa.array(values))
        case "shuffle":
            return table.take(rng.sample(range(len(table)), len(table)))
        case "repeat":
            return pa.concat_tables([table] * 2)
        case "drop":
            return table.drop_columns([name])
        case "twice":
            return table.append_column(name, column)
        case "rows":
            return table.slice(0, rng.choice([0, 1, 2]))
    return table.replace_schema_metadata(
        {rng.choice(["pandas", "ARROW:schema", "x"]): rng.choice(["", "{}", "A" * 100, "\0"])}
    )


def _of_kind(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Values of another type: those of the column if they can be converted, others, or nulls."""
    with contextlib.suppress(pa.ArrowException):
        return column.cast(kind, safe=False).combine_chunks()
    for values in ([[1, 2]], [{"a": 1}], [[("a", 1)]], [[{"a": [1]}]], [b"12345678"], [b"1" * 16]):
        with contextlib.suppress(pa.ArrowException, TypeError):
            return pa.array(values * len(column), kind)
    return pa.nulls(len(column), kind)


def _other_footer(content: bytes, rng: random.Random) -> bytes:
    """The file with other numbers of rows, places or sizes in its description.

    They are integers of variable length, so that one can take the place of another. Sometimes it is
    not a number that has the same bytes.
    """
    length = int.from_bytes(content[-8:-4], "little")
    start = len(content) - 8 - length
    footer = bytearray(content[start:-8])
    description = pq.read_metadata(io.BytesIO(content))
    numbers = [description.num_rows, description.num_row_groups, description.num_columns]
    group = description.row_group(rng.randrange(max(1, description.num_row_groups)))
    column = group.column(rng.randrange(group.num_columns))
    numbers += [group.num_rows, group.total_byte_size, column.num_values, column.data_page_offset]
    numbers += [column.total_compressed_size, column.total_uncompressed_size, *range(12)]
    for _ in range(rng.choice([1, 1, 2, 4])):
        old = _varint(2 * rng.choice(numbers))
        places = [p for p in range(len(footer)) if footer.startswith(old, p)]
        if not places:
            continue
        new = rng.choice([*_SIZES, *numbers, -(2**62)])
        zigzag = 2 * new if new >= 0 else -2 * new - 1
        place = rng.choice(places)
        footer[place : place + len(old)] = _varint(zigzag)
    whole = content[:start] + bytes(footer)
    return whole + len(footer).to_bytes(4, "little") + content[-4:]


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number % 128 + 128)
        number //= 128
    return bytes([*parts, number])
