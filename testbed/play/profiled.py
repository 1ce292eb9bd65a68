"""Job profile from a run of a bandwidth sweep: its table, its file, its
picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import RunFailed
from testbed.play.playing import RunRecord
from testbed.record.bandwidth_sweep import (
    PROFILE,
    PROFILE_RECORD,
    MeasuredSweep,
    sweep_of_rows,
)
from testbed.record.folder import write_asked_for
from testbed.report.page import write_report
from testbed.spec.experiment import Experiment


@dataclass(frozen=True)
class Profiled:
    """A run of a bandwidth sweep and the profile in it; ``file``: where it was
    written.
    """

    recorded: RunRecord
    measured: MeasuredSweep
    file: Path

    def to_json(self) -> dict[str, Any]:
        """Output of ``--json``."""
        return {
            **self.measured.to_json(),
            "profile": str(self.file),
            "run": self.recorded.to_json(),
        }


def profiled(
    experiment: Experiment,
    recorded: RunRecord,
    to: Path | None,
) -> Profiled:
    """Writes the profile of a finished run into its folder, and to ``to`` where
    that is named.

    Raises RunFailed where a run of the sweep did not finish: half a sweep is no
    profile.
    """
    if experiment.sweep is None:
        raise ValueError(f"{experiment.name} has no bandwidth sweep")
    try:
        measured = sweep_of_rows(experiment.sweep, recorded.results.rows)
    except RunFailed as error:
        raise RunFailed(
            error.message, f"see {recorded.folder.path}"
        ) from None
    folder = recorded.folder
    verdict = recorded.results.summary.fidelity.verdict
    fidelity = "" if verdict is None else f", fidelity {verdict}"
    text = measured.text(
        f"Measured by `testbed profile`, run {folder.path.name}{fidelity}."
    )
    folder.write_json(PROFILE_RECORD, measured.to_json())
    file = folder.write_text(PROFILE, text)
    # Once more: the page now has the profile that lies in the folder.
    write_report(folder, recorded.audit)
    if to is not None:
        write_asked_for("--to", to, text)
        file = to
    return Profiled(recorded, measured, file)
