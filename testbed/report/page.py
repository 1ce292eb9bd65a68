"""``report.html``: one self-contained page from a run folder and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from testbed.events import FidelityNoted, JobEnded
from testbed.report import labels
from testbed.report.pictures import pictures
from testbed.report.result_tables import in_order
from testbed.results import folder as names
from testbed.results.audit import Audit, audit, audit_all
from testbed.results.bandwidth_sweep import PROFILE_RECORD
from testbed.results.folder import RunFolder
from testbed.results.metrics import LIVE
from testbed.results.provenance import known
from testbed.results.reading import Run, in_order_of_list, load_run, policy_folders
from testbed.results.tables import stored_verdicts

MAX_TABLE_ROWS = 200
MAX_SHORT_TABLE = 24
SHOWN_PACKAGES = (
    "hosenet", "numpy", "scipy", "pydantic", "pyroute2", "ryu", "os-ken", "eventlet", "mininet",
)  # fmt: skip


def write_report(folder: RunFolder, checked: Audit | None = None) -> Path:
    """Build ``report.html`` from what lies in the folder; several policies get one each and an
    overview above. Raises BadInput where the folder is no run folder or damaged.

    ``checked`` spares a single run its audit where that has just been made.
    """
    found = policy_folders(folder.path)
    if found == [folder.path]:
        return folder.write_text(names.REPORT, run_page(load_run(folder.path), checked))
    runs = [load_run(path) for path in in_order_of_list(folder.path, found)]
    for run in runs:
        RunFolder(run.path, folder.owner).write_text(names.REPORT, run_page(run))
    return folder.write_text(names.REPORT, overview_page(folder.path, runs))


def run_page(run: Run, checked: Audit | None = None) -> str:
    """The page of one run, as HTML."""
    checked = audit(run.path) if checked is None else checked
    verdicts = stored_verdicts(run)
    notes = [event for event in run.file.events if isinstance(event, FidelityNoted)]
    files = [(name, quote(name)) for name in _files(run.path) if name != names.REPORT]
    return rendered(
        "report",
        run=run,
        summary=run.summary,
        headline=labels.headline(run.summary, verdicts, checked),
        verdicts=verdicts,
        table=in_order(verdicts.rows, MAX_TABLE_ROWS)[:MAX_TABLE_ROWS],
        long_table=len(verdicts.rows) > MAX_SHORT_TABLE,
        table_left=max(0, len(verdicts.rows) - MAX_TABLE_ROWS),
        pictures=pictures(run, verdicts),
        notes=sorted(notes, key=lambda note: {"suspect": 1, "ok": 2}.get(note.level, 0)),
        audit=checked,
        provenance={} if run.provenance is None else _provenance(run),
        packages=_packages(run),
        reproduce=_reproduce(run),
        files=files,
        folders=[
            (folder, [pair for pair in files if pair[0].startswith(f"{folder}/")])
            for folder in dict.fromkeys(name.split("/")[0] for name, _ in files if "/" in name)
        ],
    )


def _files(path: Path) -> list[str]:
    inside = [entry.relative_to(path) for entry in sorted(path.rglob("*")) if entry.is_file()]
    return [one.as_posix() for one in inside if not any(part[0] == "." for part in one.parts)]


def overview_page(path: Path, runs: Sequence[Run]) -> str:
    """The page above several policies, as HTML."""
    audits = {checked.path: checked for checked in audit_all(path)}
    entries = [
        (run, labels.headline(run.summary, stored_verdicts(run), audits[str(run.path)]))
        for run in runs
    ]
    return rendered("overview", first=runs[0].summary, entries=entries, above=audits.get(str(path)))


# ---------------------------------------------------------------------------------- provenance


def _provenance(run: Run) -> dict[str, str]:
    """Provenance as text by label; unknown values are marked as unknown."""
    of = partial(known, run.provenance)
    commit, memory, cpus = of("code.commit", str), of("machine.memory_bytes", int), "machine.cpus"
    changed = " with uncommitted changes" if of("code.dirty", bool) else ""
    seeds = (of("seeds", dict[str, int]) or {}).items()
    out = {
        "Written": of("written", str),
        "Seeds": ", ".join(f"{k} {v}" for k, v in seeds),
        "Code": None if commit is None else f"{commit[:12]}{changed}",
        "Processor": f"{of(cpus, int)} × {of('machine.cpu_model', str) or 'unknown'}",
        "Load average": ", ".join(
            f"{x:.2f}" for x in of("machine.load_average", list[float]) or ()
        ),
        "Memory": None if memory is None else f"{memory / 2**30:.1f} GiB",
        "Virtualisation": of("machine.virtualisation", str),
        "System": of("kernel.distribution", str),
        "Kernel": of("kernel.release", str),
        "Congestion control (system)": of("kernel.congestion_control", str),
        "Open vSwitch": of("tools.ovs_vswitchd", str),
        "tc": of("tools.iproute2", str),
        "Python": of("python.version", str),
        **(_of_live_run(run) if run.summary.backend == LIVE else {}),
    }
    taken = {label.lower() for label in out}
    live = {_label(key): _flat(value) for key, value in (of("live", dict[str, Any]) or {}).items()}
    out |= {label: text for label, text in live.items() if label.lower() not in taken}
    return {label: text or "unknown" for label, text in out.items()}


def _of_live_run(run: Run) -> dict[str, str]:
    """Scale and congestion control of a live run."""
    used = {
        _flat(event.detail["congestion_control"]): None
        for event in run.file.events
        if isinstance(event, JobEnded) and "congestion_control" in event.detail
    }
    scale = (run.resolved or {}).get("scale") or {}
    return {"Scale": _flat(scale), "Congestion control (jobs)": ", ".join(used)}


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
    found = known(run.provenance, "python.packages", dict[str, str]) or {}
    first = {name: found[name] for name in SHOWN_PACKAGES if name in found}
    return list((first | found).items())


def _reproduce(run: Run) -> list[str]:
    """The command that works inside this folder, and the command line that was typed."""
    live = "profile" if (run.path / PROFILE_RECORD).is_file() else "run"
    verb = f"sudo testbed {live}" if run.summary.backend == LIVE else "testbed simulate"
    # Of several policies, each has its own copy or shares the one above.
    spec = names.SPEC if (run.path / names.SPEC).is_file() else f"../{names.SPEC}"
    again = f"{verb} {spec} --seed {run.summary.seed}"
    overrides = (run.resolved or {}).get("overrides")
    for key, value in overrides.items() if isinstance(overrides, dict) else ():
        again += "" if key == "seed" else f" --set {shlex.quote(f'{key}={value}')}"
    typed = known(run.provenance, "command", list[str])
    return [again, shlex.join(typed)] if typed else [again]


# ------------------------------------------------------------------------------------- the page


def rendered(name: str, **context: Any) -> str:
    """A template with everything escaped but the pictures and the style sheet, made here."""
    templates = Environment(
        loader=PackageLoader("testbed.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(f"{name}.html.j2").render(labels=labels, **context)
