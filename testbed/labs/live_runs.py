"""Runs on the live network, played for a check as a student would start them."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from jobs.python_child import python_command
from testbed.errors import BadInput, RunFailed
from testbed.private_folders import private_folder
from testbed.record.reading import RecordedRun, load_run, policy_folders

LONGEST_S = 170
"""Time limit of one ``testbed run``."""
TO_END_S = 50.0
"""Time limit of its cleanup after an interrupt."""


@contextmanager
def played(
    experiment: str,
    *arguments: str,
    files: Sequence[Path] = (),
) -> Iterator[list[RecordedRun]]:
    """The runs of an experiment's policies, played by ``testbed run``.

    ``experiment`` is the text of its file. ``files`` are copied beside it,
    where the jobs' commands can read them. The run folder is removed at the end
    of the block. A doubtful load test does not stop the run (``--force``): the
    check has bands of its own.

    Raises BadInput with the command's message if it refuses the file (exit code
    2): what a student's function returned stands in it. Raises RunFailed with
    the message for other exit codes than 0 and 1 (a result outside the file's
    bands), and for a run that has not ended after LONGEST_S.
    """
    # Jobs run as another user, and have to get in.
    with private_folder("lab-", entered=True) as folder:
        file = folder / "experiment.yaml"
        file.write_text(experiment, encoding="utf-8")
        for original in files:
            (folder / original.name).write_bytes(original.read_bytes())
        out = folder / "runs"
        _run(file, ["--force", "--out", str(out), *arguments])
        (run_folder,) = out.iterdir()
        yield list(map(load_run, policy_folders(run_folder)))


def _run(file: Path, arguments: Sequence[str]) -> None:
    # In a new session it gets no Ctrl-C from the terminal, only the one below.
    with subprocess.Popen(
        python_command("testbed.cli.main", "run", str(file), *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        errors="replace",
    ) as child:
        try:
            _, complaint = child.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            _interrupt(child)
            raise RunFailed(
                f"testbed run had not ended after {LONGEST_S} s"
            ) from None
        except BaseException:
            _interrupt(child)
            raise
    if child.returncode == BadInput.exit_code:
        # A line per problem: the first is enough, and its folder is nobody's.
        problem, *_ = complaint.splitlines() or [""]
        problem = problem.replace(f"{file.parent}/", "")
        raise BadInput(f"testbed run refuses {problem[:400]}")
    if child.returncode not in (0, 1):
        raise RunFailed(
            f"testbed run ended with exit code {child.returncode}: "
            f"{complaint[-400:]}"
        )


def _interrupt(child: subprocess.Popen[str]) -> None:
    """Ends a run as Ctrl-C does: killed at once, it would leave its network."""
    child.send_signal(signal.SIGINT)
    # A second Ctrl-C ends the wait.
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        child.communicate(timeout=TO_END_S)
    child.kill()
