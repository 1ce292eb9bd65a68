"""``report.html``: one self-contained page from a run folder and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import DictLoader, Environment, StrictUndefined

from testbed.events import FidelityNoted, JobEnded
from testbed.report import labels
from testbed.report.bandwidth_charts import (
    applications,
    profile_alt,
    profile_svg,
    scaling_alt,
    scaling_svg,
)
from testbed.report.gantt import MAX_LANES, gantt_alt, gantt_svg, occupancy_svg, spans
from testbed.report.link_timelines import (
    MAX_HEAT_LINKS,
    MAX_PANELS,
    alike,
    heat_svg,
    link_series,
    links_alt,
    panels_svg,
)
from testbed.report.result_tables import in_order
from testbed.results import folder as names
from testbed.results.audit import Audit, audit, audit_all
from testbed.results.bandwidth_sweep import PROFILE_RECORD, stored_sweep
from testbed.results.folder import RunFolder
from testbed.results.metrics import LIVE, Summary
from testbed.results.provenance import Provenance
from testbed.results.reading import Run, load_run, policy_folders, read_json
from testbed.results.tables import Verdicts, link_rows, stored_expectation, stored_verdicts
from testbed.spec.experiment import ApplicationExpectation, Expectation

MAX_TABLE_ROWS = 200
MAX_SHORT_TABLE = 24
SHOWN_PACKAGES = (
    "hosenet", "numpy", "scipy", "pydantic", "pyroute2", "ryu", "os-ken", "eventlet", "mininet",
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """An inline picture with its caption and its description in words."""

    kind: str
    svg: str
    title: str
    caption: str
    alt: str


def write_report(folder: RunFolder, checked: Audit | None = None) -> Path:
    """Build ``report.html`` from what lies in the folder; several policies get one each and an
    overview above. Raises BadInput where the folder is no run folder or damaged.

    ``checked`` spares a single run its audit where that has just been made.
    """
    found = policy_folders(folder.path)
    if found == [folder.path]:
        return folder.write_text(names.REPORT, run_page(load_run(folder.path), checked))
    runs = [load_run(path) for path in _in_order_of_list(folder.path, found)]
    for run in runs:
        RunFolder(run.path, folder.owner).write_text(names.REPORT, run_page(run))
    return folder.write_text(names.REPORT, overview_page(folder.path, runs))


def _in_order_of_list(path: Path, found: list[Path]) -> list[Path]:
    """Policies in the experiment file's order, as the list has it; by name without one."""
    listed = read_json(path / names.SUMMARY)
    entries = listed if isinstance(listed, list) else []
    order = [entry.get("folder") for entry in entries if isinstance(entry, dict)]
    return sorted(found, key=lambda p: order.index(p.name) if p.name in order else len(order))


def run_page(run: Run, checked: Audit | None = None) -> str:
    """The page of one run, as HTML."""
    checked = audit(run.path) if checked is None else checked
    verdicts = stored_verdicts(run)
    files = [(name, quote(name)) for name in run.files if name != names.REPORT]
    context = {
        "style": _style(),
        "labels": labels,
        "run": run,
        "summary": run.summary,
        "headline": labels.headline(run.summary, verdicts, checked),
        "verdicts": verdicts,
        "table": in_order(verdicts.rows, MAX_TABLE_ROWS)[:MAX_TABLE_ROWS],
        "long_table": len(verdicts.rows) > MAX_SHORT_TABLE,
        "table_left": max(0, len(verdicts.rows) - MAX_TABLE_ROWS),
        "pictures": _pictures(run, verdicts),
        "metrics": _metrics(run.summary),
        "notes": _notes(run),
        "audit": checked,
        "provenance": _provenance(run),
        "packages": _packages(run),
        "reproduce": _reproduce(run),
        "files": files,
        "folders": [
            (folder, [pair for pair in files if pair[0].startswith(f"{folder}/")])
            for folder in dict.fromkeys(name.split("/")[0] for name, _ in files if "/" in name)
        ],
    }
    return _environment().get_template("report.html").render(context)


def overview_page(path: Path, runs: Sequence[Run]) -> str:
    """The page above several policies, as HTML."""
    audits = {checked.path: checked for checked in audit_all(path)}
    entries = []
    for run in runs:
        verdicts = stored_verdicts(run)
        headline = labels.headline(run.summary, verdicts, audits[str(run.path)])
        entries.append((run, headline, quote(f"{run.path.name}/{names.REPORT}")))
    context = {
        "style": _style(),
        "labels": labels,
        "name": runs[0].summary.name,
        "seed": runs[0].summary.seed,
        "entries": entries,
        "above": audits.get(str(path)),
    }
    return _environment().get_template("overview.html").render(context)


# ------------------------------------------------------------------------------------ pictures


def _pictures(run: Run, verdicts: Verdicts) -> list[Picture]:
    events, span_s = run.file.events, run.summary.span_s
    out = _profile_pictures(run)
    expected = _expected(stored_expectation(run), verdicts)
    found = applications(run.rows, verdicts.rows, expected)
    if found:
        out.append(
            Picture(
                "scaling",
                scaling_svg(found),
                "Bandwidth scaling: measured against estimated time",
                "Above: the estimate at each bandwidth, p·b/b', as a line, and the time from "
                "the first byte to the receivers' last byte as points. Below: measured over "
                "estimated; shaded is the band that the experiment expects, dashed what a job "
                "stays below where it got less than it asked for. A job outside is circled.",
                scaling_alt(found),
            )
        )
    if run.rows:
        out.append(_jobs_picture(run, span_s))
    series = link_series(link_rows(events))
    if series:
        groups = alike(series)
        out.append(_links_picture(run, groups, span_s))
        if len(groups) > MAX_PANELS:
            out.append(
                Picture(
                    "heat",
                    heat_svg(series, span_s),
                    "How full the links were",
                    f"The {min(MAX_HEAT_LINKS, len(series))} busiest of {len(series)} directed "
                    "links, busiest on top: the share of each link's capacity that was reserved.",
                    links_alt(groups),
                )
            )
    return out


def _profile_pictures(run: Run) -> list[Picture]:
    """The bandwidth sweep of a run of `testbed profile`; nothing for other runs."""
    path = run.path / PROFILE_RECORD
    record = read_json(path)
    if record is None:
        return []
    measured = stored_sweep(record, path)
    model = measured.model_sentence()
    rings = "" if model is None else f"{model} (rings). "
    return [
        Picture(
            "profile",
            profile_svg(measured),
            "What bandwidth gains the application",
            f"The running time at each bandwidth, every run a stroke. {measured.sentence()}. "
            f"{rings}Shaded, if anything is: bandwidth above the threshold. Dashed: a transfer as "
            "long as this one at the least bandwidth.",
            profile_alt(measured),
        )
    ]


def _expected(expect: Expectation, verdicts: Verdicts) -> dict[str, ApplicationExpectation]:
    """Expected ratio of each application: its own band, or the one for all."""
    out = {}
    for name in dict.fromkeys(row.application for row in verdicts.rows):
        own = expect.applications.get(name, ApplicationExpectation())
        out[name] = replace(own, estimate_ratio=own.estimate_ratio or expect.estimate_ratio)
    return out


def _jobs_picture(run: Run, span_s: float) -> Picture:
    all_spans = spans(run.file.events)
    if len(run.rows) <= MAX_LANES:
        return Picture(
            "jobs",
            gantt_svg(run.rows, all_spans, span_s),
            "The jobs over time",
            "A lane per job: a thin line while it waits, hatched while it is booked but not yet "
            "started, filled while it runs. The upright stroke is the estimated end; a "
            "diamond is the deadline; a cross marks a job that did not finish.",
            gantt_alt(run.rows),
        )
    slots = sum(run.started.topology["slots"])
    return Picture(
        "jobs",
        occupancy_svg(run.rows, all_spans, slots, span_s),
        "The data centre over time",
        f"VM slots in use by application, and how many jobs waited, if any did "
        f"({len(run.rows):,} jobs).",
        f"On average {labels.share_text(run.summary.vm_utilisation)} of {slots:,} VM slots were "
        f"in use; {run.summary.finished:,} jobs finished, {run.summary.rejected:,} were rejected.",
    )


def _links_picture(run: Run, groups: Sequence[Any], span_s: float) -> Picture:
    shown = min(MAX_PANELS, len(groups))
    which = "All links in use" if shown == len(groups) else f"The {shown} busiest links"
    if run.summary.backend == LIVE:
        sent = (
            "the orange line is what the counters of the sending ports showed (all protocol "
            "overhead included), the shade around it the spread over links that are alike"
        )
    else:
        sent = "nothing is sent in a simulated run, so nothing was measured"
    return Picture(
        "links",
        panels_svg(groups, span_s),
        "Reserved and sent on the links",
        f"{which}; links with the same reservations share a panel. Filled: reserved for the jobs; "
        f"{sent}; in brackets, and dashed: the capacity.",
        links_alt(groups),
    )


# -------------------------------------------------------------------------------------- tables


def _metrics(summary: Summary) -> list[tuple[str, str]]:
    """The run's metrics, those that apply to it."""
    ratio = summary.estimate_ratio
    out = [
        ("Jobs", f"{summary.jobs:,}"),
        ("Finished", f"{summary.finished:,}"),
        ("Rejected", f"{summary.rejected:,}"),
        ("Killed", f"{summary.killed:,}"),
        ("Unfinished", f"{summary.unfinished:,}"),
        ("Success rate", labels.share_text(summary.success_rate)),
        ("VM slots used", labels.share_text(summary.vm_utilisation)),
        ("Bandwidth reserved", labels.share_text(summary.link_utilisation)),
    ]
    if summary.link_utilisation_measured is not None:
        out.append(("Bandwidth sent", labels.share_text(summary.link_utilisation_measured)))
    if ratio is not None:
        spread = f"{ratio.median:.4f} ({ratio.min:.4f} – {ratio.max:.4f})"
        out.append(("Measured / estimate, median (range)", spread))
    out += [
        ("Mean wait", labels.seconds_text(summary.wait_mean_s)),
        ("Mean response", labels.seconds_text(summary.response_mean_s)),
    ]
    if summary.preemptions or summary.migrations:
        out += [
            ("Preemptions", f"{summary.preemptions:,}"),
            ("Migrations", f"{summary.migrations:,}"),
        ]
    if summary.revenue:
        out.append(("Revenue", f"{summary.revenue:,.2f}"))
    out.append(
        (
            "Time simulated" if summary.backend != LIVE else "Length",
            labels.seconds_text(summary.span_s),
        )
    )
    if summary.wall_s is not None:
        out.append(("Wall-clock time", labels.seconds_text(summary.wall_s)))
    return out


def _notes(run: Run) -> list[tuple[str, str, str]]:
    """Fidelity checks: level, check, reason; the worst first."""
    rank = {"invalid": 0, "suspect": 1, "ok": 2}
    notes = [event for event in run.file.events if isinstance(event, FidelityNoted)]
    notes.sort(key=lambda note: rank.get(note.level, 0))
    return [(note.level, note.check, note.reason) for note in notes]


def _provenance(run: Run) -> list[tuple[str, str]]:
    """Provenance as label and text; unknown values are marked as unknown."""
    record = run.provenance
    if record is None:
        return []
    code, machine, kernel = record.code, record.machine, record.kernel
    commit, memory = code.commit, machine.memory_bytes
    changed = " with uncommitted changes" if code.dirty else ""
    out: list[tuple[str, str | None]] = [
        ("Written", record.written),
        ("Seeds", ", ".join(f"{k} {v}" for k, v in (record.seeds or {}).items())),
        ("Code", None if commit is None else f"{commit[:12]}{changed}"),
        ("Processor", f"{machine.cpus} × {machine.cpu_model or 'unknown'}"),
        ("Load average", ", ".join(f"{x:.2f}" for x in machine.load_average or ())),
        ("Memory", None if memory is None else f"{memory / 2**30:.1f} GiB"),
        ("Virtualisation", machine.virtualisation),
        ("System", kernel.distribution),
        ("Kernel", kernel.release),
        ("Congestion control (system)", kernel.congestion_control),
        ("Open vSwitch", record.tools.ovs_vswitchd),
        ("tc", record.tools.iproute2),
        ("Python", record.python.version),
    ]
    out += _of_this_run(run)
    message = {label.lower() for label, _ in out}
    live = ((_label(key), _flat(value)) for key, value in (record.live or {}).items())
    out += [(label, value) for label, value in live if label.lower() not in message]
    return [(label, value or "unknown") for label, value in out]


def _of_this_run(run: Run) -> list[tuple[str, str | None]]:
    """Scale and congestion control of a live run."""
    if run.summary.backend != LIVE:
        return []
    scale = (run.resolved or {}).get("scale") or {}
    used = {
        _flat(event.detail["congestion_control"]): None
        for event in run.file.events
        if isinstance(event, JobEnded) and "congestion_control" in event.detail
    }
    return [("Scale", _flat(scale)), ("Congestion control (jobs)", ", ".join(used) or None)]


_SPELT = {"vm": "VM", "vms": "VMs", "tso": "TSO", "gso": "GSO", "gro": "GRO", "cpu": "CPU"}


def _label(key: str) -> str:
    """``userspace_tso`` as ``Userspace TSO``."""
    parts = [_SPELT.get(word, word) for word in key.split("_")]
    return " ".join([parts[0][:1].upper() + parts[0][1:], *parts[1:]])


def _flat(value: Any) -> str:
    if value in ({}, []):
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_flat(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(_flat(inner) for inner in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "unknown" if value is None else str(value)


def _packages(run: Run) -> list[tuple[str, str]]:
    found = (run.provenance or Provenance()).python.packages or {}
    first = [(name, found[name]) for name in SHOWN_PACKAGES if name in found]
    return first + [pair for pair in found.items() if pair[0] not in SHOWN_PACKAGES]


def _reproduce(run: Run) -> list[str]:
    """The command that works inside this folder, and the command line that was typed."""
    live = "profile" if (run.path / PROFILE_RECORD).is_file() else "run"
    verb = f"sudo testbed {live}" if run.summary.backend == LIVE else "testbed simulate"
    # Of several policies, each has its own copy or shares the one above.
    spec = names.SPEC if (run.path / names.SPEC).is_file() else f"../{names.SPEC}"
    again = f"{verb} {spec} --seed {run.summary.seed}"
    overrides = (run.resolved or {}).get("overrides")
    if isinstance(overrides, dict):
        again += "".join(
            f" --set {shlex.quote(f'{key}={value}')}"
            for key, value in overrides.items()
            if key != "seed"
        )
    typed = (run.provenance or Provenance()).command
    return [again, shlex.join(typed)] if typed else [again]


# ------------------------------------------------------------------------------------- the page


def _environment() -> Environment:
    """Templates with everything escaped but the pictures and the style sheet, made here."""
    folder = resources.files("testbed.report") / "templates"
    loader = DictLoader(
        {
            name: (folder / f"{name}.j2").read_text(encoding="utf-8")
            for name in ("report.html", "overview.html")
        }
    )
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _style() -> str:
    sheet = resources.files("testbed.report") / "templates" / "style.css"
    return sheet.read_text(encoding="utf-8")
