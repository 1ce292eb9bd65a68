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
from testbed.schedulers.registry import policy_kind
from testbed.spec.experiment import Experiment, PolicySpec

SHOWN_COMPLAINTS = 10


@dataclass(frozen=True)
class Recorded:
    """One policy's run, written and checked."""

    folder: RunFolder
    policy: str
    results: Results
    audit: Audit

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints: the summary, and whether the audit passed."""
        return {
            **self.results.to_json(),
            "folder": str(self.folder.path),
            "audit_passed": self.audit.passed,
        }

    def sentences(self) -> list[str]:
        """Verdicts in words, and where the report is."""
        complaints = self.results.verdicts.complaints
        out = [f"outside what was expected: {text}" for text in complaints[:SHOWN_COMPLAINTS]]
        if len(complaints) > SHOWN_COMPLAINTS:
            more = len(complaints) - SHOWN_COMPLAINTS
            out.append(f"outside what was expected: {more:,} more; the report names all")
        if self.results.verdicts.met and self.results.verdicts.judged:
            out.append("every job is within what was expected")
        fidelity = self.results.summary.fidelity
        if fidelity.verdict is not None:
            why = f": {'; '.join(fidelity.reasons)}" if fidelity.reasons else ""
            out.append(f"validity: {fidelity.verdict}{why}")
        failed = [result for result in self.audit.results if result.status == "failed"]
        out += [f"audit: {result.name} FAILED: {result.says}" for result in failed]
        if not failed:
            out.append("audit: passed")
        out.append(f"report: {self.folder.path / names.REPORT}")
        return out

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
    claims = policy_kind(policy.name).claims_of(dict(policy.parameters))
    resolved = {**experiment.resolved, "policy": policy.label, "claims": list(claims)}
    folder.write_json(names.RESOLVED, resolved)
    folder.write_json(
        names.PROVENANCE,
        provenance(seeds={"seed": experiment.seed}, command=command, backend=backend, extra=facts),
    )


def conclude_run(
    folder: RunFolder, experiment: Experiment, policy: PolicySpec, wall_s: float
) -> Recorded:
    """Tables, summary, audit and report from the events on disk, however the run ended."""
    results = conclude(folder, experiment.expect, name=experiment.name, wall_s=wall_s)
    checked = audit(folder.path)
    write_report(folder, checked)
    folder.hand_over()
    return Recorded(folder, policy.label, results, checked)
