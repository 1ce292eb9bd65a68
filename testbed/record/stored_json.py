"""JSON files of a run folder: written for people, read back with their faults named."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from testbed.errors import BadInput
from testbed.owned_files import opened_file

CHANGED = "the folder was changed after its run: run again"
"""The hint of a damaged folder."""

T = TypeVar("T")


def as_json(value: object) -> str:
    """JSON as people read it, indented by two spaces.

    Raises ValueError for NaN and infinities, which have no place in a result.
    """
    return _indented(value, "\n") + "\n"


def _indented(value: object, line_end: str) -> str:
    # The json module indents in Python, value by value. Here each innermost
    # object or array, or array of such objects, is one call of its encoder
    # in C: a tenth of the time.
    inner_end = f"{line_end}  "
    if isinstance(value, dict) and value:
        if not _all_plain(value.values()):
            parts = []
            for key, member in value.items():
                # In an object, for which the encoder makes a number a text.
                name = _encoder("").encode({key: None})[1:-5]
                parts.append(f"{name}{_indented(member, inner_end)}")
            text = f",{inner_end}".join(parts)
            return f"{{{inner_end}{text}{line_end}}}"
    elif isinstance(value, list | tuple) and value:
        if _are_records(value):
            # A line end in a string is escaped: the text that is replaced
            # stands between records alone.
            deep = f"{inner_end}  "
            text = _encoder(deep).encode(value)[2:-2]
            between = f"{inner_end}}},{inner_end}{{{deep}"
            text = text.replace(f"}},{deep}{{", between)
            return f"[{inner_end}{{{deep}{text}{inner_end}}}{line_end}]"
        if not _all_plain(value):
            parts = [_indented(member, inner_end) for member in value]
            text = f",{inner_end}".join(parts)
            return f"[{inner_end}{text}{line_end}]"
    else:
        return _encoder("").encode(value)
    text = _encoder(inner_end).encode(value)
    return f"{text[0]}{inner_end}{text[1:-1]}{line_end}{text[-1]}"


def _are_records(values: Any) -> bool:
    """True for objects that are not empty, of plain values."""
    if set(map(type, values)) != {dict} or not all(values):
        return False
    return _all_plain(chain.from_iterable(map(dict.values, values)))


def _all_plain(values: Iterable[object]) -> bool:
    """True if no value is an object or an array."""
    # By their types, of which there are few.
    kinds = set(map(type, values))
    return not any(issubclass(kind, dict | list | tuple) for kind in kinds)


@cache
def _encoder(line_end: str) -> json.JSONEncoder:
    return json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        separators=(f",{line_end}", ": "),
        default=plain_value,
    )


def plain_value(value: Any) -> Any:
    """A path, or a number of an array library, as :mod:`json` knows it.

    Raises TypeError for other values.
    """
    if isinstance(value, Path):
        return str(value)
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"{type(value).__name__} does not go into a run folder")


def typed_record(
    kind: TypeAdapter[T], record: object, path: Path, where: str
) -> T:
    """A stored record as its type. Raises BadInput naming the file and what is
    wrong there.
    """
    try:
        return kind.validate_python(record)
    except ValidationError as error:
        raise BadInput(
            f"{path}: damaged: {first_fault(error, where)}", CHANGED
        ) from error


def first_fault(error: ValidationError, where: str) -> str:
    """The first thing wrong with a record, missing fields first: ``job: n_vms
    is not int``.
    """
    fault = min(
        error.errors(include_url=False),
        key=lambda detail: detail["type"] != "missing",
    )
    # Names alone: indices of lists are left out.
    names = [part for part in fault["loc"] if isinstance(part, str)]
    name = names.pop() if names else "it"
    place = ".".join([where, *names])
    if fault["type"] == "missing":
        return f"{place} lacks {name}"
    message = _FAULTS.get(fault["type"], "is {input!r}").format_map(fault)
    return f"{place}: {name} {message}"


_FAULTS = {
    "int_type": "is not int",
    "float_type": "is not float",
    "float_parsing": "is no number",
    "string_type": "is not str",
    "list_type": "is not list",
    "tuple_type": "is not list",
    "dict_type": "is not dict",
    "mapping_type": "is not dict",
    "dataclass_type": "is no object",
    "unexpected_keyword_argument": "is unknown",
    "too_short": "is not as long as it must be",
    "too_long": "is not as short as it must be",
    "less_than": "is not a number that can be counted with",
    "greater_than": "is not a number that can be counted with",
}


def open_regular(path: Path, *, follow_link: bool = True) -> IO[bytes]:
    """A regular file opened to be read; links are followed as by
    :func:`testbed.owned_files.opened_file`.

    Raises OSError, also for a FIFO or a device, which may never end.
    """
    descriptor = opened_file(path, follow_link=follow_link)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    kind = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(kind, "not a regular file", str(path))


def regular_bytes(path: Path) -> bytes:
    """The content of a file that :func:`open_regular` opens."""
    with open_regular(path) as file:
        return file.read()


def fault_of(error: ValueError | RecursionError) -> str:
    """Description of the fault in a text that is not valid JSON."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    # Of a number with thousands of digits, Python's message names its own
    # settings.
    return str(error).split("; use sys.", 1)[0]


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def from_json(raw: bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError or RecursionError if it is not valid, or holds NaN,
    Infinity, or half a surrogate pair, which cannot be written to a file.
    """
    text = raw.decode("utf-8")
    value = _DECODER.decode(text)
    # Encoding fails on half a pair, which only an escape can have brought in.
    if "\\u" in text:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def read_json(path: Path) -> Any:
    """A JSON file's value; None where there is no such file. Raises BadInput on
    a damaged one.
    """
    try:
        return from_json(regular_bytes(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    # Before ValueError, of which it is a kind: it knows the line.
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{path}:{error.lineno}: damaged: {error.msg}", CHANGED
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: damaged: {fault_of(error)}", CHANGED
        ) from error
