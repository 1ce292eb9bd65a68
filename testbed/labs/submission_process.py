"""Program inside the sandbox: imports a student's files and calls their functions.

Runs as ``python -I -S -B submission_process.py FOLDER`` with the standard library alone. Each line
of standard input is a JSON object ``{"file", "function", "arguments"}``; each gets one JSON line on
the standard output that the program began with: ``{"value"}`` or ``{"failed", "line", "printed"}``.
What the student's code prints is kept apart, and only its end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
import traceback
from types import ModuleType
from typing import Any

MOST_PRINTED = 2_000
MOST_MESSAGE = 300


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
    with os.fdopen(os.dup(1), "wb") as replies, os.fdopen(os.dup(0), "rb") as requests:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        modules: dict[str, ModuleType] = {}
        for line in requests:
            reply = _called(folder, modules, json.loads(line))
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()


def _called(
    folder: str, modules: dict[str, ModuleType], request: dict[str, Any]
) -> dict[str, Any]:
    """The reply to a request: the function's value, or why there is none."""
    printed = _End()
    file = request["file"]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            if file not in modules:
                modules[file] = _imported(folder, file)
            function = getattr(modules[file], request["function"], None)
            if function is None:
                return {"failed": f"has no function {request['function']}", "line": None}
            value = function(*request["arguments"])
        json.dumps(value)
        return {"value": value}
    except (ValueError, TypeError) as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            why = f"{request['function']} returned what is no number, text, list or dict: {error}"
            return {"failed": why, "line": None, "printed": printed.text}
        return _failure(file, error, printed)
    except BaseException as error:  # noqa: BLE001 - a student's code raises what it likes
        return _failure(file, error, printed)


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


def _failure(file: str, error: BaseException, printed: _End) -> dict[str, Any]:
    """An exception as one sentence, with its last line in the student's file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith("/" + file)]
    if isinstance(error, SyntaxError) and error.lineno:
        lines.append(error.lineno)
    text = str(error).replace("\n", " ")[:MOST_MESSAGE]
    why = f"raised {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, ModuleNotFoundError):
        why = f"imports {error.name}, and has only Python's standard library here"
    elif isinstance(error, MemoryError):
        why = "needs more memory than it may have"
    return {"failed": why, "line": lines[-1] if lines else None, "printed": printed.text}


if __name__ == "__main__":
    main(sys.argv[1])
