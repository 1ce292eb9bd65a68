"""Live runs known good, and runs spoilt on purpose one cause at a time: the
verdict on each.

- *good*: the network is asked for a fifth of what this machine can forward;
- *too much rate*: the same experiment at many times its rate;
- *stolen processors*: busy processes of the highest priority beside it, while its jobs run;
- *starved switch*: ovs-vswitchd gets a fiftieth of a processor while its jobs run;
- *wrong limiter*: one tenant's classes on links have two fifths of their rate;
- *wrong VM limiter*: the caps of one tenant's VMs have two fifths of theirs;
- *limits too wide*: one tenant's classes and caps have two and a half times theirs.

The causes that come while jobs run come after the preflight, so that it cannot
see them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import psutil

from bench.samples import Result
from testbed import events
from testbed.backends.emu.cgroups import RunCgroup, probe_layout, remove_groups
from testbed.backends.emu.emulation import LiveOptions
from testbed.plan import limits
from testbed.plan.batch_lines import HtbClass, IpItem, Section, TcItem
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.play.live_run import LiveRun, run_live
from testbed.play.playing import RunRecord
from testbed.record.folder import RunFolder, Sink
from testbed.spec.experiment_file import load_experiment

EXPERIMENT = """
name: fidelity
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.05}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 4, bandwidth: 400 Mbit/s, duration: 8 s, pattern: ring}
    - {id: b, vms: 4, bandwidth: 400 Mbit/s, duration: 8 s, pattern: ring}
"""
TOO_MUCH = "4"
NARROW = (
    0.4  # a ring across two servers uses half of what its hose reserves there
)
WIDE = 2.5
SWITCH_SHARE = 0.02

Spoilt = Callable[[], AbstractContextManager[None]]


def run(quick: bool) -> list[Result]:
    """Every case once (``quick``) or three times.

    Each row's samples are the largest measured/estimate; 0 where no job
    finished.
    """
    repeats = 1 if quick else 3
    return [
        _case(name, repeats, settings, spoil, good=name == "good")
        for name, settings, spoil in (
            ("good", {}, nullcontext),
            ("too much rate", {"scale.rate": TOO_MUCH}, nullcontext),
            ("stolen processors", {}, _thieves),
            ("starved switch", {}, _starved_switch),
            ("wrong limiter", {}, partial(_wrong_limits, links=NARROW)),
            ("wrong VM limiter", {}, partial(_wrong_limits, caps=NARROW)),
            (
                "limits too wide",
                {},
                partial(_wrong_limits, links=WIDE, caps=WIDE),
            ),
        )
    ]


def _case(
    name: str,
    repeats: int,
    settings: dict[str, str],
    spoil: Spoilt,
    *,
    good: bool,
) -> Result:
    verdicts, ratios, finished, found = [], [], [], []
    for _ in range(repeats):
        recorded, findings = _one(settings, spoil)
        summary = recorded.results.summary
        verdicts.append(str(summary.fidelity.verdict))
        ratio = summary.estimate_ratio
        ratios.append(0.0 if ratio is None else ratio.max)
        finished.append(f"{summary.finished} of {summary.jobs}")
        found.append(findings)
    right = all((verdict == "ok") is good for verdict in verdicts)
    target = "every verdict ok" if good else "no verdict ok"
    return Result(
        name,
        "ratio",
        tuple(ratios),
        target,
        right,
        {"verdicts": verdicts, "finished": finished, "found": found},
    )


def _findings(run: Path) -> dict[str, str]:
    """Findings of the checks of a run that were not passed, by the check's
    name.
    """
    lines = (run / "events.jsonl").read_text(encoding="utf-8").splitlines()
    noted = [
        e
        for e in map(json.loads, lines)
        if e["event"] == events.FidelityNoted.name
    ]
    return {
        e["check"]: f"{e['level']}: {e['reason']}"
        for e in noted
        if e["level"] != "ok"
    }


def _one(
    settings: dict[str, str], spoil: Spoilt
) -> tuple[RunRecord, dict[str, str]]:
    with TemporaryDirectory(prefix="hosenet-bench-") as folder:
        file = Path(folder) / "fidelity.yaml"
        file.write_text(EXPERIMENT, encoding="utf-8")
        experiment = load_experiment(file, settings)
        top = RunFolder.create(
            Path(folder) / "runs", experiment.name, experiment.seed
        )

        @contextmanager
        def spoiling(*_: object) -> Generator[Sink, None, None]:
            """The progress bar's place: between the preflight and the last job."""
            with spoil():
                yield _nothing

        show = LiveRun(lambda _: None, spoiling)
        (recorded,) = run_live(
            experiment,
            top,
            LiveOptions(prefix="hv", force=True),
            show,
            ["bench"],
        )
        return recorded, _findings(recorded.folder.path)


def _nothing(_: events.Event) -> None:
    """Nobody watches."""


@contextmanager
def _thieves() -> Iterator[None]:
    """Six busy processes of the highest ordinary priority, outside every group
    of the run.
    """
    body = "import os\nos.nice(-20)\nwhile True: pass"
    home = [root / "cgroup.procs" for root in probe_layout().roots]
    processes = []
    try:
        for _ in range(3 * (os.cpu_count() or 1)):
            process = subprocess.Popen([sys.executable, "-c", body])
            processes.append(process)
            for path in home:
                path.write_text(str(process.pid), encoding="ascii")
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def _starved_switch() -> Iterator[None]:
    """The switch in a group of its own with a small quota; back where it was at
    the end.
    """
    switch = next(
        p
        for p in psutil.process_iter(["name"])
        if p.info["name"] == "ovs-vswitchd"
    )
    group = RunCgroup(probe_layout(), "starved-switch")
    group.create()
    before = Path(f"/proc/{switch.pid}/cgroup").read_text(encoding="utf-8")
    try:
        joins = group.add_vm(0, 0)
        group.set_quota(0, SWITCH_SHARE)
        for path in joins:
            path.write_text(str(switch.pid), encoding="ascii")
        yield
    finally:
        _put_back(switch.pid, before, group)
        time.sleep(0.1)
        remove_groups(group.paths)


def _put_back(pid: int, before: str, group: RunCgroup) -> None:
    for line in before.splitlines():
        _, names, place = line.split(":", 2)
        for controller, root in group.layout.mounts.items():
            wanted = (
                names == ""
                if group.layout.version == 2
                else controller in names.split(",")
            )
            if wanted:
                (root / place.lstrip("/") / "cgroup.procs").write_text(
                    str(pid), encoding="ascii"
                )


@contextmanager
def _wrong_limits(links: float = 1.0, caps: float = 1.0) -> Iterator[None]:
    """The first tenant's classes on links, or its VMs' caps, get so many times
    their rate: its plan says otherwise.
    """
    right = limits.tenant_limits

    def wrong(network: NetworkPlan, tenant: TenantPlan) -> tuple[Section, ...]:
        if tenant.tenant_id != 1:
            return right(network, tenant)
        return tuple(
            Section(
                section.netns,
                tuple(replace(x, item=of(x.item)) for x in section.lines),
            )
            for section in right(network, tenant)
        )

    def of(item: TcItem | IpItem) -> TcItem | IpItem:
        if not isinstance(item, HtbClass):
            return item
        times = links if item.parent_minor == limits.LINK_MINOR else caps
        bps = (int(item.rate_bps * times), int(item.ceil_bps * times))
        return replace(item, rate_bps=bps[0], ceil_bps=bps[1])

    with mock.patch.object(limits, "tenant_limits", wrong):
        yield
