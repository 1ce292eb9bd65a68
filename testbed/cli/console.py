"""Output of verbs: data on standard output, narration on standard error.

Colours and progress appear on a terminal only; rich honours ``NO_COLOR`` and
``TERM=dumb``.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import IO, TYPE_CHECKING, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from testbed.errors import TestbedError
from testbed.foreign_text import json_text, plain_text

if TYPE_CHECKING:
    from rich.progress import Progress

    from testbed.spec.document import Problem

STANDARD_OUTPUT = "standard output"
PIPED_WIDTH = 200
"""The widest table where no terminal sets a limit."""


class PlainConsole(Console):
    """A console on which text from outside gives a terminal no orders."""

    def render(
        self,
        renderable: RenderableType,
        options: ConsoleOptions | None = None,
    ) -> Iterator[Segment]:
        """Yields what is printed, without others' escape sequences."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(plain_text(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError, so that a run's reason names it; rich would
        end the process by an exit code of its own.
        """
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def open_standard_streams() -> None:
    """Opens streams that were closed before the start, as by ``2>&-``: what is
    printed there is lost, and no file gets their numbers.
    """
    # Before anything else is opened: the kernel would give it the lowest
    # number that is free, and output would go there.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free: with ascending numbers that is
            # the one just found closed.
            os.open(os.devnull, os.O_RDWR)
    # Python sets a stream to None whose number was closed when it started.
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a number
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def out() -> Console:
    """The console of results: standard output."""
    piped = not sys.stdout.isatty()
    # rich takes COLUMNS where no width is given.
    asked = os.environ.get("COLUMNS", "").isdigit()
    width = PIPED_WIDTH if piped and not asked else None
    # No emoji: line 100 of a file is written ":100:". No markup: a name in a
    # cell, such as "[link=…]", would be an order of its own.
    return PlainConsole(
        file=sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=piped,
        width=width,
    )


def err() -> Console:
    """The console of narration: standard error."""
    piped = not sys.stderr.isatty()
    return PlainConsole(
        file=cast("IO[str]", _Narration()),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=piped,
    )


# rich calls more of a file than it declares (``isatty``, ``fileno``); what
# is not a write goes to standard error itself.
class _Narration:
    """Standard error, whose loss stops nothing: writes to a closed terminal
    (EIO) or to a full disk (ENOSPC) are dropped.
    """

    def write(self, text: str) -> int:
        with _unless_lost():
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with _unless_lost():
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@contextmanager
def _unless_lost() -> Generator[None, None, None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EIO, errno.ENOSPC):
            raise


def print_json(value: Any) -> None:
    """One JSON value on standard output, keys in the order given.

    Objects in it are written by their ``to_json``, other dataclasses as their
    fields.
    """
    text = json.dumps(
        value,
        indent=2,
        ensure_ascii=False,
        allow_nan=False,
        default=_fields,
    )
    _write(f"{json_text(text)}\n")


def _fields(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    return asdict(value)


def print_text(text: str) -> None:
    """Text on standard output as it is, but for orders to a terminal."""
    text = plain_text(text)
    _write(text if text.endswith("\n") else f"{text}\n")


def print_result(record: Any, text: str, *, as_json: bool) -> None:
    """A verb's result: a JSON value for programs, or text for people."""
    if as_json:
        print_json(record)
    else:
        print_text(text)


def _write(text: str) -> None:
    """Raises OSError that names standard output."""
    try:
        sys.stdout.write(text)
    except OSError as error:
        raise OSError(
            error.errno, error.strerror, STANDARD_OUTPUT
        ) from error


def say(text: str) -> None:
    """A line of narration on standard error."""
    err().print(plain_text(text), soft_wrap=True)


def error_json(error: TestbedError) -> dict[str, Any]:
    """An error as ``--json`` shows it, with the fields of its kind beside the
    message.
    """
    record: dict[str, Any] = {
        "error": error.message,
        "exit_code": error.exit_code,
    }
    if error.hint is not None:
        record["hint"] = error.hint
    if problems := _problems(error):
        record["problems"] = problems
    return record


def _problems(error: TestbedError) -> Sequence[Problem]:
    """The problems of SpecErrors; none of other errors."""
    # The class itself is in a module that reads YAML, which would slow down
    # `testbed --help`.
    return getattr(error, "problems", ())


def print_error(error: TestbedError, *, as_json: bool) -> None:
    """An error as every verb ends in it: one sentence and the hint."""
    if as_json and _printed_as_json(error):
        return
    if problems := _problems(error):
        for problem in problems:
            say(str(problem))
        return
    console = err()
    console.print(Text("error: ", "bold red"), end="")
    # Before rich, which takes the ends off some orders and not their beginning.
    console.print(plain_text(error.message), soft_wrap=True)
    if error.hint is not None:
        console.print(Text("hint: ", "bold"), end="")
        console.print(plain_text(error.hint), soft_wrap=True)


def _printed_as_json(error: TestbedError) -> bool:
    """Prints the error as JSON; false where standard output has no room."""
    try:
        print_json(error_json(error))
        # Now: at the end of the process nothing could be done about a failure.
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        # Standard output is full: that may be the very error, and people
        # are to hear of it.
        return False
    return True


@contextmanager
def progress(
    description: str, total: float | None = None
) -> Generator[Progress, None, None]:
    """A progress bar with the time left; nothing at all where standard error is
    no terminal.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = err()
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        # In a log file a bar would be one line for every redraw.
        disable=not console.is_terminal,
    ) as bars:
        bars.add_task(description, total=total)
        yield bars


@contextmanager
def counted(
    description: str, total: float
) -> Generator[Callable[..., None], None, None]:
    """A progress bar of ``total`` steps, as :func:`progress`; yields a function
    that advances it, by one step or as many as it is given.
    """
    with progress(description, total) as bars:
        yield partial(bars.advance, bars.task_ids[0])
