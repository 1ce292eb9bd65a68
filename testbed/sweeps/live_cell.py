"""A live cell of a sweep, played by ``testbed run`` in a process of its own."""

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

STDERR_CHARACTERS = 400
"""Length of the end of a failed command's standard error that is reported."""
IN_USE_S = END_S + 30.0
"""Time limit of waiting for another run to end, in seconds: a run whose worker
was killed takes down its network within END_S.
"""


def played_live(
    *,
    name: str,
    files: Mapping[str, FileRef],
    overrides: Sequence[tuple[str, str]],
    keep: Path | None,
    context: Context,
) -> dict[str, Any]:
    """Plays a cell on this machine's live network; returns its ``result`` and
    its ``provenance``.

    - ``files``: the experiment file under the name "", and the files that it
      reads under the names that it has for them.
    - ``name``: the name under which the experiment file is played.
    - ``keep``: the folder in which the run folder is kept; None: it is removed.

    Raises the error that the command ended in.
    """
    with private_folder("cell-", entered=True) as folder:
        # Jobs' commands are run as another user, who has to read the files.
        folder.chmod(0o755)
        relative = {}
        for file_name, ref in files.items():
            # A file with an absolute name is not copied: it has to be there.
            if file_name.startswith("/"):
                _check_absolute(file_name, ref)
            else:
                relative[file_name] = context.path(ref)
        relative[name] = relative.pop("")
        spec = laid_out(folder, relative)[name]
        command = _command(spec, keep or folder / "runs", overrides)
        ended, record = _run_when_free(command)
        # With exit code 1 the run has a result too: its expectations were
        # not met, or its audit failed.
        if ended.returncode not in (0, 1) or record is None:
            raise _failure(record, ended.returncode, ended.stderr).error
        return _result_and_provenance(record)


def _run_when_free(
    command: Sequence[str],
) -> tuple[CompletedProcess[str], Any]:
    """Runs the command; returns the ended process and the record it printed.

    While another run holds the network the command is repeated, for at most
    ``IN_USE_S``.
    """
    until_s = time.monotonic() + IN_USE_S
    while True:
        ended = run_child(command)
        record = _printed_record(ended.stdout)
        if not _is_in_use(record) or time.monotonic() > until_s:
            return ended, record
        # A program and not time.sleep: it is interrupted as a run is.
        if run_child(("sleep", "2")).returncode != 0:
            return ended, record


def _check_absolute(name: str, ref: FileRef) -> None:
    """Raises RunFailed if the file with this absolute name is missing here, or
    its content is not that of ``ref``.
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
    arguments = [str(file), "--json", "--out", str(out)]
    for key, text in overrides:
        arguments += ["--set", f"{key}={text}"]
    return python_command("testbed.cli.main", "run", *arguments)


def _printed_record(text: str) -> Any:
    """The record of a run, or of its error, in the output of ``run --json``;
    None if there is no JSON.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return None
    # Runs are in a list, of which a cell has one; an error is in no list.
    if isinstance(value, list) and value:
        return value[0]
    return value


def _is_in_use(record: Any) -> bool:
    return isinstance(record, dict) and str(record.get("error")).startswith(
        IN_USE
    )


def _failure(record: Any, code: int, stderr: str) -> TaskFailure:
    """The error that the command printed, or its exit code where there is
    none.
    """
    if isinstance(record, dict) and "error" in record:
        return TaskFailure(
            record["error"], record.get("hint"), record["exit_code"]
        )
    end = stderr[-STDERR_CHARACTERS:].strip()
    return TaskFailure(f"testbed run ended with exit code {code}: {end}")


def _result_and_provenance(record: Mapping[str, Any]) -> dict[str, Any]:
    folder = Path(record["folder"])
    summary = dict(record)
    # A result has no path of a machine, and has expectations and audit beside
    # its summary.
    for field in ("expectations", "folder", "audit_passed"):
        del summary[field]
    # The record has the verdict of the audit, and no list of what failed.
    failed = [] if record["audit_passed"] else ["see testbed audit"]
    result = cell_result(
        summary, record["expectations"], failed, events_digest(folder)
    )
    run = read_json(folder / PROVENANCE)
    if not isinstance(run, dict):
        raise RunFailed(f"{folder / PROVENANCE} has no provenance")
    provenance = {**examined(), "run": run, "run_s": record["wall_s"]}
    return {"result": result, "provenance": provenance}
