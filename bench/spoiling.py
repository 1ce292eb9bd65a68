"""Disturbances of a live run, each of a strength, while its jobs run."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from unittest import mock

import psutil

from testbed.backends.emu.cgroups import (
    RunCgroup,
    probe_layout,
    remove_groups,
)
from testbed.plan import limits
from testbed.plan.batch_lines import BatchSection, HtbClass, IpItem, TcItem
from testbed.plan.network_plan import NetworkPlan, TenantPlan

Spoilt = Callable[[], AbstractContextManager[None]]

BUSY = "import os, sys\nos.nice(int(sys.argv[1]))\nwhile True: pass"
MEMORY = """\
import sys
block = bytearray(128 << 20)
while True:
    for at in range(0, len(block), 4096):
        block[at] = 1
    block = bytearray(block)
"""
DISK = """\
import os, tempfile
with tempfile.TemporaryFile() as file:
    while True:
        file.seek(0)
        file.write(bytes(16 << 20))
        file.flush()
        os.fsync(file.fileno())
"""


@dataclass(frozen=True)
class Disturbance:
    """A disturbance by name.

    ``kind``: its name without the strength, where that was drawn.
    """

    name: str
    spoilt: Spoilt
    kind: str = ""


@contextmanager
def programs(body: str, count: int, nice: int = 0) -> Iterator[None]:
    """Other people's programs, outside every group of the run."""
    # Children begin in the group of the run, which they are not of.
    home = [root / "cgroup.procs" for root in probe_layout().roots]
    processes = []
    try:
        for _ in range(count):
            command = [sys.executable, "-c", body, str(nice)]
            process = subprocess.Popen(command)
            processes.append(process)
            for path in home:
                path.write_text(str(process.pid), encoding="ascii")
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def paused(name: str, for_s: float, after_s: float = 2.0) -> Iterator[None]:
    """Stops the first process with that name, or with it in its command, for a
    time.
    """
    process = _process(name)
    with _stopped(lambda: process, for_s, after_s):
        yield


@contextmanager
def _stopped(
    find: Callable[[], psutil.Process | None], for_s: float, after_s: float
) -> Iterator[None]:
    """Stops the process that ``find`` returns after ``after_s``, for ``for_s``."""
    over = Event()

    def pause() -> None:
        if over.wait(after_s):
            return
        process = find()
        if process is not None:
            process.suspend()
            time.sleep(for_s)
            process.resume()

    # Beside the block: the jobs run while the process stands still.
    thread = Thread(target=pause)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _process(name: str) -> psutil.Process:
    """A process by its name or command: the run's first, then the machine's.

    Raises LookupError.
    """
    ours = psutil.Process().children(recursive=True)
    for process in [*ours, *psutil.process_iter()]:
        with suppress(psutil.Error):  # it has ended
            words = process.cmdline()
            if process.name() == name or _ends_with(name, words):
                return process
    raise LookupError(f"no process {name} runs")


def _ends_with(name: str, words: Sequence[str]) -> bool:
    return any(word.endswith(name) for word in words)


@contextmanager
def stopped_agent(for_s: float, after_s: float = 2.0) -> Iterator[None]:
    """An agent of the run, stopped for a time."""

    def first_agent() -> psutil.Process | None:
        for agent in _process("jobs.live.forkserver").children():
            return agent
        return None

    with _stopped(first_agent, for_s, after_s):
        yield


@contextmanager
def switch_quota(share: float) -> Iterator[None]:
    """The switch with a small quota."""
    with _in_group(_process("ovs-vswitchd").pid) as group:
        group.set_quota(0, share)
        yield


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """A process that stands still, and that no signal has stopped."""
    with _in_group(pid) as group:
        group.freeze(0, 0, frozen=True)
        try:
            yield
        finally:
            group.freeze(0, 0, frozen=False)


@contextmanager
def _in_group(pid: int) -> Iterator[RunCgroup]:
    """Puts a process into a group of its own, and back at the end."""
    group = RunCgroup(probe_layout(), f"spoilt-{pid}")
    group.create()
    before = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    try:
        for path in group.add_vm(0, 0):
            path.write_text(str(pid), encoding="ascii")
        yield group
    finally:
        _put_back(pid, before, group)
        time.sleep(0.1)
        remove_groups(group.paths)


def _put_back(pid: int, before: str, group: RunCgroup) -> None:
    """Moves a process into the groups of its ``/proc/PID/cgroup`` text."""
    for line in before.splitlines():
        _, names, place = line.split(":", 2)
        for controller, root in group.layout.mounts.items():
            is_wanted = controller in names.split(",")
            if group.layout.version == 2:
                # The one group of version 2 names no controllers.
                is_wanted = names == ""
            if is_wanted:
                file = root / place.lstrip("/") / "cgroup.procs"
                file.write_text(str(pid), encoding="ascii")


@contextmanager
def wrong_limits(
    links: float = 1.0, caps: float = 1.0, *, first_alone: bool = True
) -> Iterator[None]:
    """Multiplies the rates of the first tenant's classes on links, and of its
    VMs' caps, while its plan stays as it is; of every tenant unless
    ``first_alone``.
    """
    right = limits.tenant_limits

    def wrong(
        network: NetworkPlan, tenant: TenantPlan
    ) -> tuple[BatchSection, ...]:
        sections = right(network, tenant)
        if first_alone and tenant.tenant_id != 1:
            return sections
        return tuple(
            _scaled_section(section, links, caps) for section in sections
        )

    with mock.patch.object(limits, "tenant_limits", wrong):
        yield


def _scaled_section(
    section: BatchSection, links: float, caps: float
) -> BatchSection:
    lines = []
    for line in section.lines:
        lines.append(replace(line, item=_scaled(line.item, links, caps)))
    return BatchSection(section.netns, tuple(lines))


def _scaled(
    item: TcItem | IpItem, links: float, caps: float
) -> TcItem | IpItem:
    """A class with so many times its rate; all else as it is."""
    if not isinstance(item, HtbClass):
        return item
    times = caps
    if item.parent_minor == limits.LINK_MINOR:
        times = links
    return replace(
        item,
        rate_bps=int(item.rate_bps * times),
        ceil_bps=int(item.ceil_bps * times),
    )


def thieves() -> AbstractContextManager[None]:
    """Busy processes of the highest ordinary priority, three a processor."""
    return programs(BUSY, 3 * (os.cpu_count() or 1), nice=-20)


def _limits(links: float, caps: float) -> Spoilt:
    return partial(wrong_limits, links, caps, first_alone=False)


def _switch_paused(for_s: float) -> Disturbance:
    return Disturbance(
        f"switch paused {for_s:g} s", partial(paused, "ovs-vswitchd", for_s)
    )


def _agent_paused(for_s: float) -> Disturbance:
    return Disturbance(
        f"agent paused {for_s:g} s", partial(stopped_agent, for_s)
    )


def _switch_limited(share: float) -> Disturbance:
    return Disturbance(
        f"switch with {share:g} of a processor",
        partial(switch_quota, share),
    )


NOTHING = Disturbance("none", nullcontext)
GRADED: tuple[Disturbance, ...] = (
    Disturbance("1 busy loop", partial(programs, BUSY, 1)),
    Disturbance("2 busy loops", partial(programs, BUSY, 2)),
    Disturbance("4 busy loops", partial(programs, BUSY, 4)),
    Disturbance("8 busy loops", partial(programs, BUSY, 8)),
    Disturbance(
        "1 busy loop at nice -20",
        partial(programs, BUSY, 1, -20),
    ),
    Disturbance(
        "2 busy loops at nice -20",
        partial(programs, BUSY, 2, -20),
    ),
    Disturbance("6 busy loops at nice -20", thieves),
    Disturbance("memory load", partial(programs, MEMORY, 1)),
    Disturbance("disk load", partial(programs, DISK, 1)),
    _switch_paused(0.2),
    _switch_paused(0.5),
    _switch_paused(1.0),
    _switch_paused(2.0),
    _switch_paused(5.0),
    _agent_paused(0.2),
    _agent_paused(1.0),
    _agent_paused(3.0),
    Disturbance(
        "database paused 2 s",
        partial(paused, "ovsdb-server", 2.0),
    ),
    Disturbance(
        "controller paused 2 s",
        partial(paused, "controller.launch", 2.0),
    ),
    _switch_limited(0.5),
    _switch_limited(0.2),
    _switch_limited(0.1),
    _switch_limited(0.05),
    Disturbance("classes at 0.95", _limits(0.95, 1.0)),
    Disturbance("caps at 0.97", _limits(1.0, 0.97)),
    Disturbance("caps at 0.8", _limits(1.0, 0.8)),
    Disturbance("classes and caps at 1.05", _limits(1.05, 1.05)),
    Disturbance("classes and caps at 2", _limits(2.0, 2.0)),
)


# ------------------------------------------------------------------------- drawn strengths


Draw = Callable[[Random], tuple[str, Spoilt]]


def _strength(stream: Random, least: float, most: float) -> float:
    """A strength drawn evenly by its logarithm: small ones are as frequent as
    large ones.
    """
    return least * math.exp(stream.random() * math.log(most / least))


def _loops(least: int, most: int, nice: int) -> Draw:
    def draw(stream: Random) -> tuple[str, Spoilt]:
        count = stream.randint(least, most)
        name = f"{count} busy loops at nice {nice}"
        return name, partial(programs, BUSY, count, nice)

    return draw


def _load(body: str, name: str) -> Draw:
    def draw(stream: Random) -> tuple[str, Spoilt]:
        count = stream.randint(1, 2)
        return f"{count} of {name}", partial(programs, body, count)

    return draw


def _pause(process: str, name: str, least_s: float, most_s: float) -> Draw:
    def draw(stream: Random) -> tuple[str, Spoilt]:
        for_s = round(_strength(stream, least_s, most_s), 2)
        after_s = round(stream.uniform(1.5, 4.5), 1)
        text = f"{name} paused {for_s:g} s after {after_s:g} s"
        return text, partial(paused, process, for_s, after_s)

    return draw


def _agent_pause(stream: Random) -> tuple[str, Spoilt]:
    for_s = round(_strength(stream, 0.2, 5.0), 2)
    after_s = round(stream.uniform(1.5, 4.5), 1)
    name = f"agent paused {for_s:g} s after {after_s:g} s"
    return name, partial(stopped_agent, for_s, after_s)


def _quota(least: float, most: float) -> Draw:
    def draw(stream: Random) -> tuple[str, Spoilt]:
        share = round(_strength(stream, least, most), 3)
        name = f"switch with {share:g} of a processor"
        return name, partial(switch_quota, share)

    return draw


def _narrow_classes(stream: Random) -> tuple[str, Spoilt]:
    times = round(1 - _strength(stream, 0.03, 0.3), 3)
    return f"classes at {times:g}", _limits(times, 1.0)


def _narrow_caps(stream: Random) -> tuple[str, Spoilt]:
    times = round(1 - _strength(stream, 0.025, 0.3), 3)
    return f"caps at {times:g}", _limits(1.0, times)


def _wide(stream: Random) -> tuple[str, Spoilt]:
    times = round(1 + _strength(stream, 0.03, 1.5), 3)
    return f"classes and caps at {times:g}", _limits(times, times)


MILD: dict[str, Draw] = {
    "busy loops": _loops(1, 4, 0),
    "a busy loop of high priority": _loops(1, 1, -20),
    "memory load": _load(MEMORY, "memory load"),
    "disk load": _load(DISK, "disk load"),
    "database paused": _pause("ovsdb-server", "database", 0.2, 5.0),
    "controller paused": _pause(
        "controller.launch", "controller", 0.2, 5.0
    ),
    "switch with most of a processor": _quota(0.3, 0.8),
}
SEVERE: dict[str, Draw] = {
    "many busy loops": _loops(6, 12, 0),
    "busy loops of high priority": _loops(2, 6, -20),
    "switch paused": _pause("ovs-vswitchd", "switch", 0.2, 5.0),
    "agent paused": _agent_pause,
    "switch with little of a processor": _quota(0.03, 0.2),
    "classes too narrow": _narrow_classes,
    "caps too narrow": _narrow_caps,
    "limits too wide": _wide,
}


def dealt(
    stream: Random, kinds: Mapping[str, Draw]
) -> Iterator[Disturbance]:
    """Disturbances without end, of strengths drawn from ``stream``.

    Every kind comes once before one comes again.
    """
    while True:
        names = sorted(kinds)
        stream.shuffle(names)
        for kind in names:
            name, spoilt = kinds[kind](stream)
            yield Disturbance(name, spoilt, kind)
