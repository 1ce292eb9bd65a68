"""What a run leaves in its folder before and after its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.report.page import write_report
from testbed.results import folder as names
from testbed.results.audit import Audit, audit
from testbed.results.conclude import Results, conclude
from testbed.results.folder import RunFolder
from testbed.results.provenance import provenance
from testbed.spec.experiment import Experiment, PolicySpec


@dataclass(frozen=True)
class Recorded:
    """One policy's run, written and checked."""

    folder: RunFolder
    policy: str
    results: Results
    audit: Audit

    @property
    def good(self) -> bool:
        """All expectations met and the audit passed."""
        return self.results.verdicts.met and self.audit.passed


def begin_folder(
    folder: RunFolder,
    experiment: Experiment,
    policy: PolicySpec,
    backend: str,
    command: list[str],
    facts: Mapping[str, Any],
) -> None:
    """Spec as given, spec as resolved, and where all that follows comes from."""
    folder.write_text(names.SPEC, experiment.source_text)
    folder.write_json(names.RESOLVED, {**experiment.resolved, "policy": policy.label})
    folder.write_json(
        names.PROVENANCE,
        provenance(
            seeds={"seed": experiment.seed}, command=command, backend=backend, extra=dict(facts)
        ),
    )


def conclude_run(
    folder: RunFolder, experiment: Experiment, policy: PolicySpec, wall_s: float
) -> Recorded:
    """Tables, summary, audit and report from the events on disk, however the run ended."""
    results = conclude(folder, experiment.expect, name=experiment.name, wall_s=wall_s)
    checked = audit(folder.path)
    write_report(folder)
    folder.hand_over()
    return Recorded(folder, policy.label, results, checked)
