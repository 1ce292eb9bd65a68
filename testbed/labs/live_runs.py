"""Runs on the live network, played for a check as a student would start them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from jobs.python_child import python_command
from testbed.errors import RunFailed
from testbed.private_folders import private_folder
from testbed.record.reading import RecordedRun, load_run, policy_folders

LONGEST_S = 170
"""Time limit of one ``testbed run``."""


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
    check has bands of its own. Raises RunFailed with the command's message if
    its exit code is neither 0 nor 1 (a result outside the file's bands).
    """
    # Jobs run as another user, and have to get in.
    with private_folder("lab-", entered=True) as folder:
        file = folder / "experiment.yaml"
        file.write_text(experiment, encoding="utf-8")
        for original in files:
            (folder / original.name).write_bytes(original.read_bytes())
        out = folder / "runs"
        _run([str(file), "--force", "--out", str(out), *arguments])
        (run_folder,) = out.iterdir()
        yield list(map(load_run, policy_folders(run_folder)))


def _run(arguments: Sequence[str]) -> None:
    done = subprocess.run(
        python_command("testbed.cli.main", "run", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RunFailed(
            f"testbed run ended with exit code {done.returncode}: "
            f"{done.stderr[-400:]}"
        )
