"""Commands of the live network: run from argument lists, with time limits, in batches."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from testbed.errors import MachineCannot, RunFailed, install_hint

TIMEOUT_S = 120.0
_FAILED_LINE = re.compile(r"Command failed -:(\d+)")
_GONE = re.compile(r"Command failed -:|Cannot find device|does not exist|No such (file|device)")


class CommandFailed(RunFailed):
    """A command ended with an error."""


def run(
    command: Sequence[str], *, text_in: str = "", timeout_s: float = TIMEOUT_S, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Raises MachineCannot where it is missing, CommandFailed."""
    try:
        done = subprocess.run(
            command,
            input=text_in,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            # A Ctrl-C at the terminal is for us to answer, not for what we are about to finish.
            process_group=0,
        )
    except FileNotFoundError as error:
        message = f"there is no command {command[0]!r}"
        raise MachineCannot(message, install_hint()) from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{command[0]}: no answer within {timeout_s:.0f} s") from error
    if check and done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise CommandFailed(f"{command[0]}: {reason}")
    return done


def ip_batch(lines: Sequence[str], netns: str | None = None) -> None:
    """``ip -batch``, on the host or in a namespace; it stops at the first line that fails.

    Earlier lines stay applied: taking them back is up to the caller. Raises CommandFailed with the
    text of the line.
    """
    done = _ip(lines, *(("-netns", netns) if netns else ()))
    if done.returncode == 0:
        return
    complaints = done.stderr.strip().splitlines()
    found = next(filter(None, map(_FAILED_LINE.match, complaints)), None)
    number = int(found.group(1)) if found else 0
    text = f" at {lines[number - 1]!r}" if 0 < number <= len(lines) else ""
    reason = " ".join(line for line in complaints if not _FAILED_LINE.match(line))
    raise CommandFailed(f"ip -batch{text}: {reason}")


def ip_remove(lines: Sequence[str]) -> None:
    """Removals by ``ip -batch``: every line is tried, and what is gone already is no failure."""
    complaints = _ip(lines, "-force").stderr.splitlines()
    left = [line for line in complaints if line.strip() and not _GONE.search(line)]
    if left:
        raise CommandFailed(f"ip -batch: {'; '.join(left)}")


def _ip(lines: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    text_in = "".join(f"{line}\n" for line in lines)
    return run(("ip", *options, "-batch", "-"), text_in=text_in, check=False)
