"""Program inside the sandbox: imports a student's files and calls their functions.

Runs as ``python -P -s -S -B program.py FOLDER`` with the standard library alone. It says READY.
Then each line of standard input is a JSON object ``{"n", "file", "function", "arguments"}``; each
gets one JSON line on the standard output that the program began with: ``{"n", "value"}`` or ``{"n",
"failed", "line", "printed"}``. What the student's code prints is kept apart, and only its end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import random
import sys
import traceback
from types import ModuleType
from typing import Any

MOST_PRINTED = 2_000
MOST_MESSAGE = 300
MOST_FRAMES = 2_000
MOST_LEVELS = 100
READY = b"ready\n"


class _End(io.TextIOBase):
    """The end of what was written, at most MOST_PRINTED characters."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text = (self.text + text[-MOST_PRINTED:])[-MOST_PRINTED:]
        return len(text)


def main(folder: str) -> None:
    """Serves calls until standard input ends."""
    own = os.getpid()
    # The same answers each time: marks can be computed again.
    random.seed(0)
    with os.fdopen(os.dup(1), "wb") as replies, os.fdopen(os.dup(0), "rb") as requests:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        replies.write(READY)
        replies.flush()
        modules: dict[str, ModuleType] = {}
        for line in requests:
            request = json.loads(line)
            reply = _called(folder, modules, request)
            if os.getpid() != own:
                os._exit(0)  # a fork of the student's code
            replies.write(b'{"n": %d, %s}\n' % (request["n"], reply.encode()))
            replies.flush()


def _called(folder: str, modules: dict[str, ModuleType], request: dict[str, Any]) -> str:
    """The members of the reply to a request: the function's value, or why there is none."""
    printed = _End()
    file, name = request["file"], request["function"]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if file not in modules:
                modules[file] = _imported(folder, file)
            function = getattr(modules[file], name, None)
            if function is None:
                return _failed(f"has no function {name}")
            value = function(*request["arguments"])
    except BaseException as error:  # noqa: BLE001 - a student's code raises what it likes
        return _failed(*_failure(file, error), printed.text)
    try:
        text = json.dumps(value)
        check_levels(value)
    except RecursionError:
        return _failed(f"{name} returned a value that is nested too deeply")
    except Exception as error:  # noqa: BLE001 - likewise what such a value does
        why = f"{name} returned what is no number, text, list or dict: {error}"
        return _failed(why[:MOST_MESSAGE])
    return f'"value": {text}'


def check_levels(value: Any) -> None:
    """Raises RecursionError for more than MOST_LEVELS of lists and dicts: json's own limit is
    another on each Python.
    """
    level = [value]
    for _ in range(MOST_LEVELS):
        inner = [one.values() if isinstance(one, dict) else one for one in level if _nests(one)]
        level = [part for parts in inner for part in parts]
    if any(_nests(one) for one in level):
        raise RecursionError


def _nests(value: Any) -> bool:
    return isinstance(value, list | tuple | dict)


def _failed(why: str, line: int | None = None, printed: str = "") -> str:
    return json.dumps({"failed": why, "line": line, "printed": printed})[1:-1]


def _imported(folder: str, file: str) -> ModuleType:
    name = file.removesuffix(".py")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, file))  # noqa: PTH118
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _failure(file: str, error: BaseException) -> tuple[str, int | None]:
    """An exception as one sentence, with its last line in the student's file."""
    try:
        frames = traceback.extract_tb(error.__traceback__, limit=-MOST_FRAMES)
        lines = [frame.lineno for frame in frames if frame.filename.endswith("/" + file)]
        text = str(error).replace("\n", " ")[:MOST_MESSAGE]
    except BaseException:  # noqa: BLE001 - an exception of the student's own class
        return f"raised {type(error).__name__}", None
    if isinstance(error, SyntaxError) and isinstance(error.lineno, int):
        lines.append(error.lineno)
    why = f"raised {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, ModuleNotFoundError):
        why = f"imports {error.name}, and has only Python's standard library here"
    elif isinstance(error, MemoryError):
        why = "needs more memory than it may have"
    return why, lines[-1] if lines else None


if __name__ == "__main__":
    main(sys.argv[1])
