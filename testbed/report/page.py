"""``report.html``: one self-contained page from a run folder and nothing else."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from testbed.audit import Audit, audit, audit_all
from testbed.events import FidelityNoted, JobEnded
from testbed.foreign_text import plain_text
from testbed.owned_files import files_in
from testbed.record import folder as names
from testbed.record.bandwidth_sweep import PROFILE_RECORD
from testbed.record.conclusion import Results
from testbed.record.folder import RunFolder
from testbed.record.job_history import kind_of_reason
from testbed.record.metrics import LIVE, Recording
from testbed.record.provenance import known
from testbed.record.reading import (
    RecordedRun,
    in_order_of_list,
    load_run,
    policy_folders,
)
from testbed.record.running import RunningRun, running_in
from testbed.record.verdicts import Verdict
from testbed.report import labels
from testbed.report.headline import Headline, headline, is_unfinished
from testbed.report.pictures import pictures
from testbed.report.policy_distributions import (
    PlayedPolicy,
    distributions,
    policies_sentence,
)
from testbed.report.result_tables import in_order
from testbed.units import number_of

MAX_TABLE_ROWS = 200
MAX_SHORT_TABLE = 24
MAX_REASONS = 20
SHOWN_PACKAGES = (
    "hosenet",
    "numpy",
    "scipy",
    "pydantic",
    "ryu",
    "os-ken",
    "eventlet",
    "mininet",
)


def write_report(
    folder: RunFolder,
    checked: Audit | None = None,
    file: Recording | None = None,
) -> Path:
    """Builds ``report.html`` from what lies in the folder.

    Several policies get a page each, and an overview above. ``checked`` and
    ``file``: the audit and the parsed events of a single run, if the caller has
    them. Raises BadInput where the folder is no run folder or damaged.
    """
    folders = policy_folders(folder.path)
    # Asked before the files are read, as the run may end meanwhile. A run whose
    # audit is passed has ended.
    in_progress = running_in(folder.path) if checked is None else None
    if folders == [folder.path]:
        run = load_run(folder.path, file)
        page = run_page(run, checked, in_progress)
    else:
        runs = list(map(load_run, in_order_of_list(folder.path, folders)))
        for run in runs:
            page = run_page(run, None, in_progress)
            RunFolder(run.path, folder.owner).write_text(names.REPORT, page)
        page = overview_page(folder.path, runs, in_progress)
    return folder.write_text(names.REPORT, page)


def run_page(
    run: RecordedRun,
    checked: Audit | None = None,
    in_progress: RunningRun | None = None,
) -> str:
    """The page of one run, as HTML; that of a run in progress has its state."""
    if checked is None:
        checked = audit(run.path, run.file)
    results = Results.of(run)
    verdicts = results.verdicts
    # A browser does not open thousands of rows; jobs.csv has all. Where there
    # are more, the bad ones come first, and the others are cut off.
    n_rows = len(verdicts.rows)
    table = in_order(verdicts.rows, MAX_TABLE_ROWS)[:MAX_TABLE_ROWS]
    files = _files(run.path)
    return rendered(
        "report",
        run=run,
        summary=run.summary,
        headline=headline(results, checked, in_progress),
        in_progress=in_progress,
        so_far=_so_far(run, in_progress),
        verdicts=verdicts,
        table=table,
        applications=_name_more_than_jobs(table),
        rejections=_rejections(run),
        long_table=n_rows > MAX_SHORT_TABLE,
        table_left=max(0, n_rows - MAX_TABLE_ROWS),
        pictures=pictures(run, verdicts),
        notes=sorted(run.file.tally.notes, key=_gravity),
        audit=checked,
        provenance=_provenance(run),
        packages=_packages(run),
        reproduce=_reproduce(run),
        files=files,
        folders=_by_folder(files),
    )


def _name_more_than_jobs(rows: Sequence[Verdict]) -> bool:
    """True if the name of some job's application is not the job's id."""
    return any(row.application != row.job_id for row in rows)


def _so_far(
    run: RecordedRun, in_progress: RunningRun | None
) -> dict[str, str]:
    """Words on each job that has not ended, by id; none for a run that is not in
    progress.
    """
    if not is_unfinished(run.summary, in_progress):
        return {}
    states = {}
    for row in run.rows:
        if row.outcome == "unfinished":
            begun = row.start_s is not None
            states[row.job_id] = "has begun" if begun else "has not begun"
    return states


def _rejections(run: RecordedRun) -> list[tuple[str, int]]:
    """Reasons of rejections without their numbers, the commonest first."""
    reasons: Counter[str] = Counter()
    for row in run.rows:
        if row.outcome == "rejected":
            reasons[labels.reason_text(kind_of_reason(row.reason))] += 1
    return reasons.most_common(MAX_REASONS)


def _gravity(note: FidelityNoted) -> int:
    """A note's sort key: the worst first, unknown levels among them."""
    return {"suspect": 1, "ok": 2}.get(note.level, 0)


def _files(path: Path) -> list[str]:
    """All files of a run but hidden ones and the page itself."""
    files = []
    for name in files_in(path):
        hidden = name.startswith(".") or "/." in name
        if not hidden and name != names.REPORT:
            files.append(name)
    return files


def write_overview(
    folder: RunFolder,
    runs: Sequence[tuple[Results, Audit]],
) -> Path:
    """Builds the page above several policies at their run's end, from their
    results.
    """
    entries: list[OverviewEntry] = []
    for results, checked in runs:
        entries.append((results, headline(results, checked)))
    page = _overview(entries, planned=len(entries), above=None)
    return folder.write_text(names.REPORT, page)


OverviewEntry = tuple[PlayedPolicy, Headline]
"""A policy's run, and its headline."""


def _overview(
    entries: Sequence[OverviewEntry], planned: int, above: Audit | None
) -> str:
    """The page above several policies. ``planned``: how many policies the run
    plays; ``above``: the audit of their list.
    """
    runs = [run for run, _ in entries]
    summaries = [run.summary for run in runs]
    return rendered(
        "overview",
        first=summaries[0],
        sentence=policies_sentence(runs),
        distributions=distributions(runs),
        entries=entries,
        some_killed=any(summary.killed for summary in summaries),
        some_unfinished=any(summary.unfinished for summary in summaries),
        planned=planned,
        above=above,
    )


def _by_folder(files: list[str]) -> dict[str, list[str]]:
    """The files in sub-folders, by the uppermost folder."""
    folders: dict[str, list[str]] = {}
    for name in files:
        folder, slash, _ = name.partition("/")
        if slash:
            folders.setdefault(folder, []).append(name)
    return folders


def overview_page(
    path: Path,
    runs: Sequence[RecordedRun],
    in_progress: RunningRun | None = None,
) -> str:
    """The page above several policies, as HTML."""
    audits = {checked.path: checked for checked in audit_all(path)}
    entries: list[OverviewEntry] = []
    for run in runs:
        checked = audits[str(run.path)]
        top = headline(Results.of(run), checked, in_progress)
        entries.append((run, top))
    # The list of policies is written, and audited, when the last has ended.
    above = None if in_progress else audits.get(str(path))
    planned = len(in_progress.policies if in_progress else runs)
    return _overview(entries, planned, above)


# -- provenance


def _provenance(run: RecordedRun) -> dict[str, str]:
    """Provenance as text by label; unknown values are marked as unknown."""
    if run.provenance is None:
        return {}
    texts = _of_machine(run.provenance)
    if run.summary.backend == LIVE:
        texts |= _of_live_run(run)
    # What the live network recorded of itself, but for what stands above.
    shown = {label.lower() for label in texts}
    live = known(run.provenance, "live", dict[str, Any]) or {}
    for key, value in live.items():
        label = _label(key)
        if label.lower() not in shown:
            texts[label] = _flat(value)
    return {label: text or "unknown" for label, text in texts.items()}


def _of_machine(provenance: Mapping[str, Any]) -> dict[str, str | None]:
    """Facts that every run records: code, machine and programs."""
    of = partial(known, provenance)
    return {
        "Written": of("written", str),
        "Seeds": _seeds(of("seeds", dict[str, int])),
        "Code": _code(of("code.commit", str), of("code.dirty", bool)),
        "Processor": _processor(
            of("machine.cpus", int),
            of("machine.cpu_model", str),
        ),
        "Load average": _loads(of("machine.load_average", list[float])),
        "Memory": _memory(of("machine.memory_bytes", int)),
        "Virtualisation": of("machine.virtualisation", str),
        "System": of("kernel.distribution", str),
        "Kernel": of("kernel.release", str),
        "Congestion control (system)": of("kernel.congestion_control", str),
        "Open vSwitch": of("tools.ovs_vswitchd", str),
        "tc": of("tools.iproute2", str),
        "Python": of("python.version", str),
    }


def _seeds(seeds: dict[str, int] | None) -> str:
    return ", ".join(
        f"{name} {seed}" for name, seed in (seeds or {}).items()
    )


def _code(commit: str | None, dirty: bool | None) -> str | None:
    if commit is None:
        return None
    return f"{commit[:12]}{' with uncommitted changes' if dirty else ''}"


def _processor(cpus: int | None, model: str | None) -> str:
    return f"{cpus or 'unknown'} × {model or 'unknown'}"


def _loads(averages: list[float] | None) -> str:
    return ", ".join(f"{average:.2f}" for average in averages or ())


def _memory(size_bytes: int | None) -> str | None:
    if size_bytes is None:
        return None
    return f"{size_bytes / 2**30:.1f} GiB"


def _of_live_run(run: RecordedRun) -> dict[str, str]:
    """Scale and congestion control of a live run."""
    # By job: a user's program may choose another one.
    controls: dict[str, None] = {}
    for event in run.file.events:
        if isinstance(event, JobEnded):
            control = event.detail.get("congestion_control")
            if "congestion_control" in event.detail:
                controls[_flat(control)] = None
    scale = (run.resolved or {}).get("scale") or {}
    return {
        "Scale": _flat(scale),
        "Congestion control (jobs)": ", ".join(controls),
    }


_SPELT = {
    "vm": "VM",
    "vms": "VMs",
    "tso": "TSO",
    "gso": "GSO",
    "gro": "GRO",
    "cpu": "CPU",
}


def _label(key: str) -> str:
    """``userspace_tso`` as ``Userspace TSO``."""
    words = [_SPELT.get(word, word) for word in key.split("_")]
    return labels.capital(" ".join(words))


def _flat(value: Any) -> str:
    if value in ({}, []):
        return "none"
    if isinstance(value, dict):
        return ", ".join(
            f"{key}: {_flat(inner)}" for key, inner in value.items()
        )
    if isinstance(value, list):
        return ", ".join(map(_flat, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def _packages(run: RecordedRun) -> list[tuple[str, str]]:
    """All packages with their versions, SHOWN_PACKAGES first."""
    packages = (
        known(run.provenance, "python.packages", dict[str, str]) or {}
    )
    order = dict.fromkeys([*SHOWN_PACKAGES, *packages])
    return [(name, packages[name]) for name in order if name in packages]


def _reproduce(run: RecordedRun) -> list[str]:
    """A command that repeats the run, for use inside its folder; the command
    line that was typed, if it is known.
    """
    spec = names.SPEC
    # Of several policies, each has its own copy or shares the one above.
    if not (run.path / spec).is_file():
        spec = f"../{spec}"
    again = f"{_verb(run)} {spec} --seed {run.summary.seed}"
    overrides = (run.resolved or {}).get("overrides")
    if isinstance(overrides, dict):
        for key, value in overrides.items():
            # The command has the seed already.
            if key != "seed":
                again += f" --set {shlex.quote(f'{key}={value}')}"
    typed = known(run.provenance, "command", list[str])
    if typed:
        return [again, shlex.join(typed)]
    return [again]


def _verb(run: RecordedRun) -> str:
    if run.summary.backend != LIVE:
        return "testbed simulate"
    if (run.path / PROFILE_RECORD).is_file():
        return "sudo testbed profile"
    return "sudo testbed run"


# -- the page


def _shown(value: Any) -> Any:
    """A value as a page shows it; one that is marked safe stays as it is."""
    # jinja marks by this method.
    if hasattr(value, "__html__"):
        return value
    return plain_text(str(value))


def _address(name: str) -> str:
    """A file's name as part of an address."""
    # `#` and `?` would end the path, and bytes that are no UTF-8 have no
    # character.
    return quote(os.fsencode(name))


def rendered(name: str, **context: Any) -> str:
    """A page by its template. All values are escaped but those marked safe: the
    pictures and the style sheet.
    """
    template = _templates().get_template(f"{name}.html.j2")
    values = template.new_context(
        {"labels": labels, "number_of": number_of, **context}
    )
    text = "".join(template.root_render_func(values))
    # A context and its macros hold each other: with these the events of a
    # whole run would stay until the next search for cycles.
    values.parent.clear()
    return text


@cache
def _templates() -> Environment:
    """The templates, each compiled once."""
    templates = Environment(
        loader=PackageLoader("testbed.report"),
        autoescape=True,
        # A name that a template misspells is else an empty place in the
        # page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Applied to each value before it is escaped.
        finalize=_shown,
    )
    templates.filters["address"] = _address
    return templates
