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
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from bench.progress import Progress, Step
from bench.samples import Result

KILLS, LONGEST_S = 100, 8.0
"""A run of the file takes some 7 s: its preflight, its network, its jobs, its
end.
"""
RUN_TIMEOUT_S = 120.0
GROUPS = ("freezer", "cpu", "memory", "unified", "")
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
    """Of four kills three are followed by ``clean``, one by a run that is let
    to its end.
    """
    n, rng = (4 if quick else args.kills), Random(args.seed)  # noqa: S311 - no secret
    progress = Progress([Step(f"kill {k + 1}", 10.0) for k in range(n)])
    problems: list[str] = []
    moments: list[float] = []
    cleaned: list[float] = []
    ran: list[float] = []
    with (
        TemporaryDirectory(prefix="hosenet-kills-") as folder,
        _others() as others,
    ):
        file = Path(folder) / "run.yaml"
        file.write_text(FILE)
        before = _everything()
        for k in range(n):
            moment_s = rng.uniform(0.0, LONGEST_S)
            with progress.step():
                moments.append(_killed(file, moment_s))
                began = time.monotonic()
                runs = k % 4 == 3
                argv = (
                    ["run", str(file), "--out", folder]
                    if runs
                    else ["clean"]
                )
                done = _testbed(*argv)
                (ran if runs else cleaned).append(time.monotonic() - began)
                wrong = (
                    []
                    if done.returncode == 0
                    else [f"exit code {done.returncode}: {done.stderr}"]
                )
                after = _everything()
                wrong += [
                    f"left: {name}" for name in sorted(after - before)
                ]
                wrong += [
                    f"gone: {name}" for name in sorted(before - after)
                ]
                problems += [
                    f"killed after {moment_s:.3f} s, then {argv[0]}: {w}"
                    for w in wrong
                ]
                if wrong:
                    progress.say(problems[-1])
        problems += others()
    return [
        Result(
            "left behind, or of others touched",
            "",
            samples=(float(len(problems)),),
            target="nothing",
            meets=not problems,
            extra={"problems": problems[:20]} if problems else {},
        ),
        Result("killed after", "s", tuple(moments)),
        Result("clean, afterwards", "s", tuple(cleaned or [0.0])),
        *(
            [Result("the next run, to its end", "s", tuple(ran))]
            if ran
            else []
        ),
    ]


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
    """Start a run and kill it by SIGKILL; returns after what time that was."""
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
    """All that a run makes, by the machine's own tools, whoever it belongs to."""
    shown = _out("ip", "-o", "link")
    things = {
        f"device {line.split(': ')[1].split('@')[0]}"
        for line in shown.splitlines()
    }
    things |= {
        f"namespace {path.name}" for path in Path("/run/netns").glob("*")
    }
    for kind in ("list-br", "show"):
        things |= {
            f"switch {line.strip()}"
            for line in _out("ovs-vsctl", kind).splitlines()
        }
    things |= {
        f"queueing {line}"
        for line in _out("tc", "qdisc", "show").splitlines()
    }
    for group in GROUPS:
        for path in Path("/sys/fs/cgroup", group).glob("hosenet*/*"):
            things.add(f"group {path}")
    for process in psutil.process_iter(["name", "cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        if re.search(
            r"jobs\.live|controller\.launch|hosenet|testbed\.cli", words
        ):
            things.add(f"process {process.pid} {words[:80]}")
    return things


def _out(*argv: str) -> str:
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=30, check=True
    ).stdout


@contextmanager
def _others() -> Iterator[Callable[[], list[str]]]:
    """Things of other people; yields what tells which of them are not as they
    were.
    """
    bridge, spaces = "hn-zz-others", ("others-ns", "hn-others")
    made: list[tuple[str, ...]] = []

    def make(undo: tuple[str, ...], *argv: str) -> None:
        subprocess.run(argv, check=True, capture_output=True)
        made.append(undo)

    sleeper = subprocess.Popen(["sleep", "100000"])
    group = Path("/sys/fs/cgroup/freezer/others")
    try:
        for space in spaces:
            make(("ip", "netns", "del", space), "ip", "netns", "add", space)
        pair = ("type", "veth", "peer", "name", "oth-b")
        make(
            ("ip", "link", "del", "oth-a"),
            "ip",
            "link",
            "add",
            "oth-a",
            *pair,
        )
        make(("true",), "tc", "qdisc", "add", "dev", "oth-a", "root", "tbf", "rate", "1mbit",
             "burst", "15k", "latency", "50ms")  # fmt: skip
        kind = (
            "system"
            if Path("/sys/module/openvswitch").exists()
            else "netdev"
        )
        set_kind = ("--", "set", "bridge", bridge, f"datapath_type={kind}")
        make(
            ("ovs-vsctl", "del-br", bridge),
            "ovs-vsctl",
            "add-br",
            bridge,
            *set_kind,
        )
        make(
            ("true",),
            "ovs-ofctl",
            "add-flow",
            bridge,
            "priority=7,actions=drop",
        )
        if group.parent.is_dir():
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(sleeper.pid))

        def faults() -> list[str]:
            out = (
                []
                if sleeper.poll() is None
                else ["the others' process is gone"]
            )
            if "priority=7" not in _out("ovs-ofctl", "dump-flows", bridge):
                out.append("the others' rule is gone")
            if (
                group.is_dir()
                and str(sleeper.pid)
                not in (group / "cgroup.procs").read_text()
            ):
                out.append("the others' process is in another group")
            return out

        yield faults
    finally:
        sleeper.kill()
        sleeper.wait()
        for undo in reversed(made):
            subprocess.run(undo, check=False, capture_output=True)
        if group.is_dir():
            group.rmdir()
