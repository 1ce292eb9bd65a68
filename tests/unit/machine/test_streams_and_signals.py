"""A program's start: streams that are closed, signals that are ignored."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from testbed.backends.emu.interrupts import (
    terminated_as_interrupt,
    uninterrupted,
)

REPOSITORY = Path(__file__).parents[3]
FILE = """\
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
workload:
  kind: jobs
  jobs: [{id: first, vms: 3, bandwidth: 400 Mbit/s, duration: 6 s}]
"""


@pytest.fixture
def answered() -> Iterator[Callable[[signal.Signals], None]]:
    """Gives a signal its usual answer for the test: under nohup this process
    was started to ignore it.
    """
    before = {}

    def answer(number: signal.Signals) -> None:
        before[number] = signal.signal(number, signal.SIG_DFL)

    yield answer
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def ignored() -> Iterator[Callable[[signal.Signals], None]]:
    """Ignores a signal, as before the start of this process, for the test."""
    before = {}

    def ignore(number: signal.Signals) -> None:
        before[number] = signal.signal(number, signal.SIG_IGN)

    yield ignore
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("block", [terminated_as_interrupt, uninterrupted])
def test_a_signal_that_was_ignored_stays_so(
    block: Callable[[], AbstractContextManager[None]],
    number: signal.Signals,
    ignored: Callable[[signal.Signals], None],
) -> None:
    ignored(number)
    with block():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_an_ignored_signal_hides_no_other(
    ignored: Callable[[signal.Signals], None],
) -> None:
    ignored(signal.SIGHUP)
    held = uninterrupted()
    held.__enter__()
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        held.__exit__(None, None, None)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_another_one_ends_it(
    number: signal.Signals, answered: Callable[[signal.Signals], None]
) -> None:
    answered(number)
    with (
        pytest.raises(KeyboardInterrupt, match=number.name),
        terminated_as_interrupt(),
    ):
        os.kill(os.getpid(), number)


CLOSED = ["2>&-", ">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"]


def with_closed(
    streams: str, folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *("sh", "-c", f'exec "$@" {streams}', "sh"),
            *(sys.executable, "-m", "testbed.cli.main", *arguments),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.short(">&-", "<&- >&- 2>&-")
@pytest.mark.slow
@pytest.mark.parametrize("streams", CLOSED)
def test_a_run_does_its_work_without_streams(
    tmp_path: Path, streams: str
) -> None:
    (tmp_path / "net.yaml").write_text(FILE)
    done = with_closed(
        streams, tmp_path, "simulate", "net.yaml", "--out", "runs"
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    # What would have been printed is in none of its files.
    (folder,) = (tmp_path / "runs").iterdir()
    for path in folder.rglob("*.json*"):
        assert "report.html" not in path.read_text("utf-8")
    assert (folder / "summary.json").is_file()


@pytest.mark.short(
    "arguments0-2->&- 2>&-",
    "arguments1-0-<&-",
    "arguments1-0->&-",
    "arguments2-0-2>&-",
    "arguments3-2-<&- >&- 2>&-",
)
@pytest.mark.slow
@pytest.mark.parametrize("streams", CLOSED)
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("validate", "none.yaml"), 2),
        (("validate", "net.yaml", "--json"), 0),
        (("--help",), 0),
        (("no-such-verb",), 2),
    ],
)
def test_exit_codes_are_the_same_without_streams(
    tmp_path: Path, streams: str, arguments: tuple[str, ...], code: int
) -> None:
    (tmp_path / "net.yaml").write_text(FILE)
    done = with_closed(streams, tmp_path, *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


NOT_READ = [
    ("--help",),
    ("no-such-verb", "--json"),
    ("schema",),
    ("policy", "list"),
    ("simulate", "net.yaml", "--out", "runs"),
]


@pytest.mark.short(
    "schema-True",
    "simulate net.yaml --out runs-False",
    "no-such-verb --json-True",
    "--help-False",
)
@pytest.mark.slow
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("arguments", NOT_READ, ids=" ".join)
def test_a_reader_that_closes_our_output_is_no_failure(
    tmp_path: Path, arguments: tuple[str, ...], *, buffered: bool
) -> None:
    """As `| head -1` does, here before the first line."""
    (tmp_path / "net.yaml").write_text(FILE)
    done = unread(tmp_path, arguments, buffered=buffered)
    assert done.returncode == 141
    for words in ("Traceback", "Broken pipe", "Exception ignored"):
        assert words not in done.stderr


def unread(
    folder: Path, arguments: tuple[str, ...], *, buffered: bool
) -> subprocess.CompletedProcess[str]:
    """A command whose standard output has lost its reader."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    environment.pop("PYTHONUNBUFFERED", None)
    if not buffered:
        environment["PYTHONUNBUFFERED"] = "1"
    try:
        return subprocess.run(
            [sys.executable, "-m", "testbed.cli.main", *arguments],
            cwd=folder,
            env=environment,
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writing)


@pytest.mark.slow
def test_a_reader_that_closes_all_we_print_ends_a_run_quietly(
    tmp_path: Path,
) -> None:
    (tmp_path / "net.yaml").write_text(FILE)
    command = [sys.executable, "-m", "testbed.cli.main"]
    words = shlex.join([*command, "simulate", "net.yaml"])
    done = subprocess.run(
        ["bash", "-c", f"{words} 2>&1 | true; exit ${{PIPESTATUS[0]}}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["typer", "pydantic"])
def test_an_interrupt_while_a_command_is_imported_is_told_in_a_word(
    tmp_path: Path, library: str
) -> None:
    """Of the command line itself, and of what a verb imports."""
    (tmp_path / f"{library}.py").write_text(
        "import os, signal\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "raise ImportError('it was not interrupted')\n"
    )
    path = os.pathsep.join((str(tmp_path), str(REPOSITORY)))
    done = subprocess.run(
        [sys.executable, "-m", "testbed.cli.main", "simulate", "net.yaml"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # As a terminal's shell starts it, however these tests were started.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
