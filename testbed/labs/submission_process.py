"""Program inside the sandbox: calls functions of a student's files.

Runs as ``python -P -s -S -B program.py FOLDER`` with the standard library
alone. It writes READY. Then each line of standard input is a request, a JSON
object ``{"n", "file", "function", "arguments"}``. The reply is one JSON line on
the standard output that the program was started with: ``{"n", "value"}`` or
``{"n", "failed", "line", "printed"}``. ``printed`` is the end of what the
student's code has printed in the call.
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


class _PrintedEnd(io.TextIOBase):
    """The end of what was written, at most MOST_PRINTED characters."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        # Cut before it is joined: a text may take nearly all memory.
        self.text = (self.text + text[-MOST_PRINTED:])[-MOST_PRINTED:]
        return len(text)


def serve_calls(folder: str) -> None:
    """Serves calls until standard input ends."""
    server_pid = os.getpid()
    # Each run gives the same answers, so that marks can be computed again.
    random.seed(0)
    # Under other numbers: the student's code takes 0 to 2 for its streams.
    with (
        os.fdopen(os.dup(1), "wb") as replies,
        os.fdopen(os.dup(0), "rb") as requests,
    ):
        null_fd = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null_fd, descriptor)
        replies.write(READY)
        replies.flush()
        modules: dict[str, ModuleType] = {}
        for line in requests:
            request = json.loads(line)
            reply = _called(folder, modules, request)
            if os.getpid() != server_pid:
                # The student's code may have forked: its copy returns from
                # the call too, and would answer a second time.
                os._exit(0)
            replies.write(
                b'{"n": %d, %s}\n' % (request["n"], reply.encode())
            )
            replies.flush()


def _called(
    folder: str,
    modules: dict[str, ModuleType],
    request: dict[str, Any],
) -> str:
    """Members of the reply: the function's value, or why there is none."""
    printed = _PrintedEnd()
    file = request["file"]
    name = request["function"]
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            if file not in modules:
                modules[file] = _imported(folder, file)
            function = getattr(modules[file], name, None)
            if function is None:
                return _failed(f"has no function {name}")
            value = function(*request["arguments"])
    except BaseException as error:  # noqa: BLE001 - a student's code raises what it likes
        return _failed(*_failure(file, error), printed.text)
    return _returned(name, value)


def _returned(name: str, value: Any) -> str:
    try:
        text = json.dumps(value)
        check_levels(value)
    except RecursionError:
        return _failed(f"{name} returned a value that is nested too deeply")
    except MemoryError:
        return _failed(f"{name} returned more than fits in its memory")
    except Exception as error:  # noqa: BLE001 - likewise what such a value does
        why = f"{name} returned what is no number, text, list or dict: {error}"
        return _failed(why[:MOST_MESSAGE])
    return f'"value": {text}'


def check_levels(value: Any) -> None:
    """Raises RecursionError for more than MOST_LEVELS of lists and dicts.

    json has a limit of its own, which differs between versions of Python.
    """
    # Level by level, since the value may be nested deeper than the stack is.
    level = [value]
    for _ in range(MOST_LEVELS):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        level = below
    if any(isinstance(item, dict | list | tuple) for item in level):
        raise RecursionError


def _failed(
    why: str,
    line: int | None = None,
    printed: str = "",
) -> str:
    record = {"failed": why, "line": line, "printed": printed}
    # Without its braces: the request's number stands in front of it in the
    # reply.
    return json.dumps(record)[1:-1]


def _imported(folder: str, file: str) -> ModuleType:
    name = file.removesuffix(".py")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    path = os.path.join(folder, file)  # noqa: PTH118
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _failure(
    file: str,
    error: BaseException,
) -> tuple[str, int | None]:
    """An exception as one sentence, and its last line in the student's file."""
    kind = type(error).__name__
    try:
        line = _last_line(file, error)
        text = str(error).replace("\n", " ")[:MOST_MESSAGE]
    except BaseException:  # noqa: BLE001 - an exception of the student's own class
        return f"raised {kind}", None
    # A mistake in a text for eval(), or in another file, has no line here.
    if (
        isinstance(error, SyntaxError)
        and _is_of(file, error.filename)
        and isinstance(error.lineno, int)
    ):
        line = error.lineno
    if isinstance(error, ModuleNotFoundError):
        return (
            f"imports {error.name}, and has only Python's standard library here"
        ), line
    if isinstance(error, MemoryError):
        return "needs more memory than it may have", line
    if text:
        return f"raised {kind}: {text}", line
    return f"raised {kind}", line


def _is_of(file: str, path: object) -> bool:
    """True if ``path`` is that of the student's file."""
    return isinstance(path, str) and path.endswith("/" + file)


def _last_line(file: str, error: BaseException) -> int | None:
    """The last line of a file that an exception has passed."""
    line = None
    # An endless recursion has as many frames as Python allows, and the text of
    # each frame's line is read from its file: only the last ones are looked at.
    for frame in traceback.extract_tb(
        error.__traceback__, limit=-MOST_FRAMES
    ):
        if _is_of(file, frame.filename):
            line = frame.lineno
    return line


if __name__ == "__main__":
    serve_calls(sys.argv[1])
