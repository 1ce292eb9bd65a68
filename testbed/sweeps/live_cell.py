"""A live cell: the cell's file played by ``testbed run`` in a process of its
own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from jobs.python_child import python_command
from testbed.errors import IN_USE, RunFailed
from testbed.private_folders import private_folder
from testbed.record.folder import PROVENANCE
from testbed.record.stored_json import read_json
from testbed.sweeps.child_process import END_S, run_child
from testbed.sweeps.result_store import cell_result, events_digest
from testbed.sweeps.tasks import (
    Context,
    FileRef,
    TaskFailure,
    laid_out,
    unchanged,
)
from testbed.sweeps.worker_side import examined

LAST = 400
"""Characters of a failed command's last words that are passed on."""
IN_USE_S = END_S + 30.0
"""Time in which a run whose worker was killed has cleaned up and left the
machine, in seconds.
"""


def played_live(
    *,
    name: str,
    files: Mapping[str, FileRef],
    overrides: Sequence[tuple[str, str]],
    keep: Path | None,
    context: Context,
) -> dict[str, Any]:
    """The result of a cell on this machine's live network, with the run's
    provenance.

    ``files`` are by their names in the experiment; the experiment's own file is
    by "", and is played under ``name``. Raises the error that the command ended
    in.
    """
    with private_folder("cell-", entered=True) as folder:
        # Jobs' commands are run as another user.
        folder.chmod(0o755)
        relative = {}
        for file_name, ref in files.items():
            # One with an absolute name has to be at that place already.
            if file_name.startswith("/"):
                _check_absolute(file_name, ref)
            else:
                relative[file_name] = context.path(ref)
        relative[name] = relative.pop("")
        spec = laid_out(folder, relative)[name]
        command = _command(spec, keep or folder / "runs", overrides)
        done, record = _until_free(command)
        # 1 is a result too: one outside what was expected.
        if done.returncode not in (0, 1) or record is None:
            raise _failure(record, done.returncode, done.stderr).error
        return _read(record)


def _until_free(
    command: Sequence[str],
) -> tuple[CompletedProcess[str], Any]:
    """The command's end, and the record that it printed; it is run again while
    another run holds the network, for at most ``IN_USE_S``.
    """
    until_s = time.monotonic() + IN_USE_S
    while True:
        done = run_child(command)
        record = _printed(done.stdout)
        if not _is_in_use(record) or time.monotonic() > until_s:
            return done, record
        # A program, so that the wait is interrupted as a run is.
        if run_child(("sleep", "2")).returncode != 0:
            return done, record


def _check_absolute(name: str, ref: FileRef) -> None:
    """Raises RunFailed where an absolute name stands for another content here
    than in the key.
    """
    try:
        unchanged(ref, Path(name))
    except RunFailed:
        raise RunFailed(
            f"{name} is not here, or another one than where the sweep began",
            "have it there, or name it relative to the experiment file: then it is sent",
        ) from None


def _command(
    file: Path, out: Path, overrides: Sequence[tuple[str, str]]
) -> list[str]:
    words = [str(file), "--json", "--out", str(out)]
    for key, text in overrides:
        words += ["--set", f"{key}={text}"]
    return python_command("testbed.cli.main", "run", *words)


def _printed(text: str) -> Any:
    """A command's value of ``--json``; None where it printed none."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if isinstance(value, list) and value:
        return value[0]
    return value


def _is_in_use(record: Any) -> bool:
    return isinstance(record, dict) and str(record.get("error")).startswith(
        IN_USE
    )


def _failure(record: Any, code: int, words: str) -> TaskFailure:
    if isinstance(record, dict) and "error" in record:
        return TaskFailure(
            record["error"], record.get("hint"), record["exit_code"]
        )
    return TaskFailure(
        f"testbed run ended with exit code {code}: {words[-LAST:].strip()}"
    )


def _read(record: Mapping[str, Any]) -> dict[str, Any]:
    """The run's result; its summary without the folder and the times of this
    machine.
    """
    folder = Path(record["folder"])
    summary = dict(record)
    for apart in ("expectations", "folder", "audit_passed"):
        del summary[apart]
    # The record says whether the audit passed, not what failed.
    failed = [] if record["audit_passed"] else ["see testbed audit"]
    result = cell_result(
        summary, record["expectations"], failed, events_digest(folder)
    )
    run = read_json(folder / PROVENANCE)
    if not isinstance(run, dict):
        raise RunFailed(f"{folder / PROVENANCE} says nothing")
    where = {**examined(), "run": run, "run_s": record["wall_s"]}
    return {"result": result, "provenance": where}
