"""Commands of the live network: argument lists, time limits and batches."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

from testbed.errors import MachineCannot, RunFailed, install_hint

TIMEOUT_S = 120.0
_FAILED_LINE = re.compile(r"Command failed -:(\d+)")
_GONE = re.compile(
    r"Command failed -:|Cannot find device|does not exist|No such (file|device)"
)


class CommandFailed(RunFailed):
    """A command ended with an error."""


def run(
    command: Sequence[str],
    *,
    text_in: str = "",
    timeout_s: float = TIMEOUT_S,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end.

    Raises MachineCannot where it is missing, and CommandFailed.
    """
    try:
        done = subprocess.run(
            command,
            input=text_in,
            capture_output=True,
            text=True,
            # ss shows the names of all processes, which may be any bytes.
            errors="backslashreplace",
            timeout=timeout_s,
            check=False,
            # Ctrl-C at the terminal goes to its foreground group: this process
            # handles it, while the command finishes.
            process_group=0,
        )
    except FileNotFoundError as error:
        message = f"there is no command {command[0]!r}"
        raise MachineCannot(message, install_hint()) from error
    except subprocess.TimeoutExpired as error:
        message = f"{command[0]}: no answer within {timeout_s:.0f} s"
        raise CommandFailed(message) from error
    except OSError as error:
        raise CommandFailed(f"{command[0]}: {error.strerror}") from error
    if check and done.returncode != 0:
        reason = done.stderr.strip() or f"exit code {done.returncode}"
        raise CommandFailed(f"{command[0]}: {reason}")
    return done


def ip_batch(lines: Sequence[str], netns: str | None = None) -> None:
    """Runs ``ip -batch``, on the host or in a namespace.

    It stops at the first line that fails, and earlier lines stay applied:
    taking them back is up to the caller. Raises CommandFailed with the text of
    the line.
    """
    options = ("-netns", netns) if netns else ()
    done = _ip(lines, *options)
    if done.returncode == 0:
        return
    place = ""
    reasons = []
    for complaint in done.stderr.strip().splitlines():
        failed = _FAILED_LINE.match(complaint)
        if failed is None:
            reasons.append(complaint)
        elif not place and 0 < int(failed[1]) <= len(lines):
            place = f" at {lines[int(failed[1]) - 1]!r}"
    reason = " ".join(reasons) or f"exit code {done.returncode}"
    raise CommandFailed(f"ip -batch{place}: {reason}")


def ip_remove(lines: Sequence[str]) -> None:
    """Runs removals by ``ip -batch``, every line of them.

    A thing that is gone already is no failure.
    """
    # With -force a failed line does not end the batch.
    done = _ip(lines, "-force")
    complaints = done.stderr.splitlines()
    left = [c for c in complaints if c.strip() and not _GONE.search(c)]
    if done.returncode < 0:
        left.append(f"exit code {done.returncode}")
    if left:
        raise CommandFailed(f"ip -batch: {'; '.join(left)}")


def _ip(
    lines: Sequence[str], *options: str
) -> subprocess.CompletedProcess[str]:
    text_in = "".join(f"{line}\n" for line in lines)
    return run(
        ("ip", *options, "-batch", "-"), text_in=text_in, check=False
    )
