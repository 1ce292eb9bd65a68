"""``testbed run`` killed by SIGKILL at random moments; then ``testbed clean``,
or the next run.

After each there must be nothing of the testbed's left, and other people's
things (a namespace, devices with a limit, a bridge with a rule, a control group
with a process, some of them under names like the testbed's) must be as they
were.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from bench.progress import Progress, Step
from bench.samples import Result
from testbed.backends.emu.open_vswitch import datapath_type

KILLS = 100
LONGEST_S = 8.0
"""A run of the file takes some 7 s: its preflight, its network, its jobs, its
end.
"""
RUN_TIMEOUT_S = 120.0
GROUPS = ("freezer", "cpu", "memory", "unified", "")
OWN_PROCESS = re.compile(
    r"jobs\.live|controller\.launch|hosenet|testbed\.cli"
)
"""A command line of the testbed's."""
BRIDGE = "hn-zz-others"
SPACES = ("others-ns", "hn-others")
DEVICE = "oth-a"
"""Things of other people's, some under names like the testbed's."""
FILE = """\
name: to-be-killed
topology: {kind: tree, fanout: [2, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 2}
scale: {rate: 0.05}
policies: [vc]
expect: {fidelity: invalid}
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 4, bandwidth: 200 Mbit/s, duration: 1 s}
    - {id: b, at: 0.5 s, vms: 3, bandwidth: 100 Mbit/s, duration: 1 s, pattern: all-to-all}
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed", type=int, default=1, help="of the moments (default 1)"
    )
    parser.add_argument(
        "--kills", type=int, default=KILLS, help=f"default {KILLS}"
    )


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """After three of four kills runs ``clean``, after the fourth a whole run."""
    n_kills = args.kills
    if quick:
        n_kills = 4
    rng = Random(args.seed)  # noqa: S311 - no secret
    steps = [Step(f"kill {k + 1}", 10.0) for k in range(n_kills)]
    progress = Progress(steps)
    tally = Tally()
    with (
        TemporaryDirectory(prefix="hosenet-kills-") as folder,
        _others() as others,
    ):
        file = Path(folder) / "run.yaml"
        file.write_text(FILE)
        before = _everything()
        for k in range(n_kills):
            # At any moment of a run, some of them after its end.
            moment_s = rng.uniform(0.0, LONGEST_S)
            with progress.step():
                wrong = _kill(
                    file, moment_s, before, tally, rerun=k % 4 == 3
                )
                if wrong:
                    progress.say(wrong[-1])
        tally.problems += others()
    return _results(tally)


@dataclass
class Tally:
    """Results of all kills: their moments and the times of the commands after
    them, in s, and problems as sentences.
    """

    moments: list[float] = field(default_factory=list)
    cleaned: list[float] = field(default_factory=list)
    ran: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _kill(
    file: Path,
    moment_s: float,
    before: set[str],
    tally: Tally,
    *,
    rerun: bool,
) -> list[str]:
    """A kill and the command after it; returns the problems found then."""
    tally.moments.append(_killed(file, moment_s))
    argv = ["clean"]
    durations = tally.cleaned
    if rerun:
        argv = ["run", str(file), "--out", str(file.parent)]
        durations = tally.ran
    began = time.monotonic()
    done = _testbed(*argv)
    durations.append(time.monotonic() - began)
    wrong = []
    if done.returncode != 0:
        wrong.append(f"exit code {done.returncode}: {done.stderr}")
    wrong += _changed(before, _everything())
    killed = f"killed after {moment_s:.3f} s, then {argv[0]}"
    problems = [f"{killed}: {text}" for text in wrong]
    tally.problems += problems
    return problems


def _changed(before: set[str], after: set[str]) -> list[str]:
    """Things that are left, then those that are gone."""
    left = [f"left: {name}" for name in sorted(after - before)]
    gone = [f"gone: {name}" for name in sorted(before - after)]
    return left + gone


def _results(tally: Tally) -> list[Result]:
    extra = {}
    if tally.problems:
        extra = {"problems": tally.problems[:20]}
    rows = [
        Result(
            "left behind, or of others touched",
            "",
            samples=(float(len(tally.problems)),),
            target="nothing",
            meets=not tally.problems,
            extra=extra,
        ),
        Result("killed after", "s", tuple(tally.moments)),
        Result("clean, afterwards", "s", tuple(tally.cleaned or [0.0])),
    ]
    if tally.ran:
        ran = tuple(tally.ran)
        rows.append(Result("the next run, to its end", "s", ran))
    return rows


def _testbed(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed.cli.main", *argv]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def _killed(file: Path, moment_s: float) -> float:
    """Starts a run and kills it by SIGKILL; returns its age then, in s."""
    command = [
        sys.executable,
        "-m",
        "testbed.cli.main",
        "run",
        str(file),
        "--out",
        str(file.parent),
    ]
    began = time.monotonic()
    # A session of its own: a terminal's signals are not to end it.
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        time.sleep(moment_s)
        # Itself alone: its switch, controller and agents are left, as after
        # any crash.
        process.send_signal(signal.SIGKILL)
        process.wait()
    return time.monotonic() - began


def _everything() -> set[str]:
    """All things of the kinds that a run makes, whoever made them."""
    return _network_things() | _group_things() | _process_things()


def _network_things() -> set[str]:
    things = set()
    for line in _out("ip", "-o", "link").splitlines():
        # A veth is shown as NAME@PEER.
        device = line.split(": ")[1].split("@")[0]
        things.add(f"device {device}")
    for path in Path("/run/netns").glob("*"):
        things.add(f"namespace {path.name}")
    for verb in ("list-br", "show"):
        for line in _out("ovs-vsctl", verb).splitlines():
            things.add(f"switch {line.strip()}")
    for line in _out("tc", "qdisc", "show").splitlines():
        things.add(f"queueing {line}")
    return things


def _group_things() -> set[str]:
    things = set()
    for group in GROUPS:
        for path in Path("/sys/fs/cgroup", group).glob("hosenet*/*"):
            things.add(f"group {path}")
    return things


def _process_things() -> set[str]:
    things = set()
    for process in psutil.process_iter(["name", "cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if OWN_PROCESS.search(words):
            things.add(f"process {process.pid} {words[:80]}")
    return things


def _out(*argv: str) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=30, check=True
    ).stdout


@contextmanager
def _others() -> Iterator[Callable[[], list[str]]]:
    """Things of other people; yields a function that finds which of them have
    changed.
    """
    sleeper = subprocess.Popen(["sleep", "100000"])
    group = Path("/sys/fs/cgroup/freezer/others")
    with ExitStack() as undoing:
        # Callbacks run backwards: the group is removed at the very end, when
        # the process in it is gone.
        undoing.callback(_remove_group, group)
        made = undoing.enter_context(ExitStack())
        undoing.callback(sleeper.wait)
        undoing.callback(sleeper.kill)
        _make_network(made)
        if group.parent.is_dir():
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(sleeper.pid))
        yield lambda: _faults(sleeper, group)


def _remove_group(group: Path) -> None:
    if group.is_dir():
        group.rmdir()


def _make_network(made: ExitStack) -> None:
    """Namespaces, a pair of devices with a limit, and a bridge with a rule."""
    for space in SPACES:
        _call("ip", "netns", "add", space)
        made.callback(_undo, "ip", "netns", "del", space)
    pair = ("type", "veth", "peer", "name", "oth-b")
    _call("ip", "link", "add", DEVICE, *pair)
    made.callback(_undo, "ip", "link", "del", DEVICE)
    limit = ("tbf", "rate", "1mbit", "burst", "15k", "latency", "50ms")
    _call("tc", "qdisc", "add", "dev", DEVICE, "root", *limit)
    kind = f"datapath_type={datapath_type()}"
    set_kind = ("--", "set", "bridge", BRIDGE, kind)
    _call("ovs-vsctl", "add-br", BRIDGE, *set_kind)
    made.callback(_undo, "ovs-vsctl", "del-br", BRIDGE)
    _call("ovs-ofctl", "add-flow", BRIDGE, "priority=7,actions=drop")


def _call(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def _undo(*argv: str) -> None:
    subprocess.run(argv, check=False, capture_output=True)


def _faults(sleeper: subprocess.Popen[bytes], group: Path) -> list[str]:
    """The others' things that are not as they were."""
    faults = []
    if sleeper.poll() is not None:
        faults.append("the others' process is gone")
    if "priority=7" not in _out("ovs-ofctl", "dump-flows", BRIDGE):
        faults.append("the others' rule is gone")
    if group.is_dir():
        members = (group / "cgroup.procs").read_text()
        if str(sleeper.pid) not in members:
            faults.append("the others' process is in another group")
    return faults
