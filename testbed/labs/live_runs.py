"""Runs on the live network, played for a check as a student would start them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import RunFailed
from testbed.results.reading import Run, load_run, policy_folders

LONGEST_S = 170


@contextmanager
def played(experiment: str, *arguments: str, files: Sequence[Path] = ()) -> Iterator[list[Run]]:
    """Plays an experiment, given as the text of its file, by ``testbed run``; its policies' runs.

    ``files`` are copied beside the experiment's, where the jobs' commands can read them. The run
    folder is removed at the end of the block.
    On a machine whose load test has doubts it runs all the same: a check's own bands judge.
    Raises RunFailed with what the command said, unless it ended well or outside its bands (exit 1).
    """
    with tempfile.TemporaryDirectory(prefix="hosenet-lab-") as name:
        file, out = Path(name) / "experiment.yaml", Path(name) / "runs"
        Path(name).chmod(0o755)
        file.write_text(experiment, encoding="utf-8")
        for each in files:
            (Path(name) / each.name).write_bytes(each.read_bytes())
        command = [sys.executable, "-m", "testbed.cli.main", "run", str(file), "--force"]
        done = subprocess.run(
            [*command, "--out", str(out), *arguments], stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LONGEST_S, check=False,
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise RunFailed(
                f"testbed run ended with exit code {done.returncode}: {done.stderr[-400:]}"
            )
        (folder,) = out.iterdir()
        yield [load_run(one) for one in policy_folders(folder)]
