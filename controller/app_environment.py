"""A virtual environment for a person's applications, of a requirements file.

A program of its own: what is installed may execute as it is installed, so it is
that person's process and never root's. It uses the standard library alone, for
it is started by its text: that person need not reach the testbed's files. Each
line on standard output says what it does, the last one names the interpreter.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EXIT_BAD_FILE = 2
EXIT_MACHINE_CANNOT = 3
READY = "ready"
LAST_LINES = 4
TRACEBACK = "ERROR: Exception:"
OPTIONS = (
    "--disable-pip-version-check", "--no-input", "--progress-bar", "off",
    "--retries", "1", "--timeout", "15",
)  # fmt: skip
SHOWN = ("Collecting ", "Building ", "Installing ", "Successfully ")
# pip ends with 1 whatever fails: its words alone tell a network out of
# reach from a package that does not exist.
OFFLINE = re.compile(
    r"NewConnectionError|NameResolutionError|name resolution|ConnectTimeout"
    r"|ReadTimeout|ProxyError|Network is unreachable"
)
INCLUDED = re.compile(
    r"^\s*(?:-r|-c|--requirement|--constraint)[ =]*(\S+)", re.MULTILINE
)
# Requirements by paths, which are relative to the file's folder.
LOCAL = re.compile(
    r"^\s*(?:(?:-e|--editable)[ =]*)?(?:\.{1,2}(?:/|\s*$)|file:\.)|@\s*file:\.",
    re.MULTILINE,
)
NEEDS_OLD_TOOLS = re.compile(r"^\s*ryu\b", re.MULTILINE | re.IGNORECASE)
OLD_TOOLS = "setuptools<68\n"
"""Ryu 4.34's setup script fails with newer ones."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CannotMake(Exception):
    """An environment that cannot be made, and the exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def main(arguments: list[str]) -> int:
    """Makes the environment of the arguments ``REQUIREMENTS CACHE``.

    Returns the exit code: 2 for what pip cannot install, 3 for what the machine
    lacks; a sentence on it is on standard error.
    """
    requirements, cache = map(Path, arguments)
    try:
        print(made(requirements, cache), flush=True)
    except CannotMake as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)
        return EXIT_MACHINE_CANNOT
    return 0


def made(requirements: Path, cache: Path) -> Path:
    """The interpreter of a file's environment, which is made once.

    Raises CannotMake, OSError.
    """
    text = read(requirements)
    folder = cache / key(text, requirements.parent)
    with locked(cache):
        python = folder / "bin" / "python"
        if (folder / READY).exists():
            say(f"packages of {requirements}: those in {folder}")
            return python
        say(f"packages of {requirements}: installing into {folder}")
        if folder.exists():
            # Of one that was killed in the middle.
            shutil.rmtree(folder)
        make(folder)
        install(python, requirements, tools_of(text, folder))
        # Last of all: a folder without it is of an installation that was
        # cut short.
        (folder / READY).touch()
    return python


def say(text: str) -> None:
    print(text, flush=True)


# -- what identifies it


def read(requirements: Path) -> str:
    """A file's text, and that of each that it includes. Raises CannotMake."""
    texts = []
    waiting = [requirements]
    known = set()
    while waiting:
        path = waiting.pop()
        # Without ``..``: by it a file that includes itself has ever longer names.
        place = os.path.realpath(path)
        if place in known:
            continue
        known.add(place)
        try:
            # A byte order mark would hide what the first line includes.
            text = path.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise CannotMake(f"{path}: {error}", EXIT_BAD_FILE) from None
        texts.append(text)
        for included in INCLUDED.findall(text):
            # What is elsewhere is pip's to fetch, and may change unseen.
            if "://" not in included:
                waiting.append(path.parent / included)
    return "\n".join(texts)


def key(text: str, folder: Path) -> str:
    """The name of an environment: by the files' texts and the interpreter, and
    by the first file's folder where paths are relative to it.
    """
    interpreter = f"{sys.version}\n{sys.executable}\n"
    place = f"{folder}\n" if LOCAL.search(text) else ""
    digest = hashlib.sha256((interpreter + place + text).encode())
    return digest.hexdigest()[:24]


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """One process at a time makes something in a folder of this user's alone.

    Raises CannotMake where others could write in it.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The folder is its own lock: owner, mode and lock are those of what was
    # opened, wherever the path leads a moment later.
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(cache, flags)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            raise CannotMake(
                f"{cache}: others may write there: chmod go-w {cache}",
                EXIT_MACHINE_CANNOT,
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process installs packages: waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# -- what is made


def make(folder: Path) -> None:
    """An environment with pip. Raises CannotMake."""
    # Not with pip at once: its complaints would be kept back.
    run_module(sys.executable, "venv", "--without-pip", str(folder))
    python = str(folder / "bin" / "python")
    run_module(python, "ensurepip", "--default-pip")


def run_module(
    python: str,
    module: str,
    *arguments: str,
) -> None:
    """Runs a module of Python's own. Raises CannotMake where it fails."""
    done = subprocess.run(
        [python, "-I", "-m", module, *arguments],
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode:
        last = last_of((done.stdout + done.stderr).splitlines())
        raise CannotMake(
            f"{module} fails (Debian: python3-venv): {last}",
            EXIT_MACHINE_CANNOT,
        )


def tools_of(text: str, folder: Path) -> dict[str, str]:
    """Variables of pip for packages that are built with older tools."""
    if NEEDS_OLD_TOOLS.search(text) is None:
        return {}
    constraint = folder / "build.txt"
    constraint.write_text(OLD_TOOLS)
    # By the first name for builds too, until pip 25.3.
    names = ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
    return dict.fromkeys(names, str(constraint))


def install(
    python: Path,
    requirements: Path,
    environment: dict[str, str],
) -> None:
    """Has pip install a file's packages. Raises CannotMake."""
    command = [str(python), "-I", "-m", "pip", "install", *OPTIONS]
    lines = []
    with subprocess.Popen(
        [*command, "-r", str(requirements)],
        env={**os.environ, **environment},
        # Paths in the file are relative to it.
        cwd=requirements.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None  # noqa: S101 - a pipe
        for line in pip.stdout:
            lines.append(line.strip())
            if lines[-1].startswith(SHOWN):
                say(lines[-1])
    if not pip.returncode:
        return
    if OFFLINE.search("\n".join(lines)):
        raise CannotMake(
            f"nothing can be fetched, the network is out of reach: "
            f"{last_of(lines)}",
            EXIT_MACHINE_CANNOT,
        )
    raise CannotMake(f"pip: {last_of(lines)}", EXIT_BAD_FILE)


def last_of(lines: list[str]) -> str:
    """The last lines of an output in one, of errors if there are any."""
    errors = [line for line in lines if line.startswith("ERROR:")]
    # Where pip itself fails the reason is the last line of its traceback,
    # which does not begin with ERROR.
    if TRACEBACK in errors:
        errors = []
    filled = [line for line in errors or lines if line]
    return "; ".join(filled[-LAST_LINES:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
