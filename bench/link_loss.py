"""From a link's loss to the guarantee again: seeded losses under a tenant with
steady TCP.

The network is that of ``testbed up``: a link of the tenant's tree is taken down
by ``ip link set``, behind the keeper's back, and a second later brought back.
Counted from just before that command:

- *moved*: until the keeper has the tenant on another tree, and the old one is empty (its log);
- *goodput*: until the end of the first 100 ms in which TCP had 95 % of the tenant's guarantee, as
  payload, after the longest pause of the receiver that begins in the 100 ms after the loss. So
  100 ms are the least.

A second pair of the tenant's VMs runs iperf3: milliseconds in which it received
nothing, in intervals of 100 ms, and segments that it sent again.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import testbed
from bench.progress import Progress, Step
from bench.samples import Result
from jobs.wire import payload_bytes
from testbed.backends.emu.vm_process import VmPlace
from testbed.errors import RunFailed
from testbed.standing.keeper_protocol import ShowLinks, ask, standing_dir
from testbed.standing.network_layout import NetworkLayout, ShowLayout
from testbed.standing.network_state import LinkState
from testbed.standing.standing_network import StandingNetwork

EXPERIMENT = """
name: link-loss
topology: {{kind: fat-tree, k: {k}, links: 1 Gbit/s, slots_per_server: 2}}
scale: {{rate: {rate}}}
policies: [vc]
workload: {{kind: jobs, jobs: [{{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 1 s}}]}}
"""
RATES = {4: 0.05, 6: 0.05}
"""k -> rates times this: what two processors carry with room to spare."""
BANDWIDTH = "400 Mbit/s"
DOWN_S, UP_S = 1.2, 0.4
WINDOW_NS, STEP_NS = 100_000_000, 1_000_000
SHARE = 0.95
SEED = 5
WITHIN_S = 1.0
RECEIVE = """
import socket, sys, time
with socket.create_server(("", 5000)) as listener:
    connection, _ = listener.accept()
    total = 0
    while data := connection.recv(1 << 16):
        total += len(data)
        print(time.monotonic_ns(), total)
"""
SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as connection:
    while True:
        connection.sendall(bytes(1 << 14))
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """``--k`` and ``--losses``."""
    several = "a fat-tree's k; may be given several times"
    parser.add_argument(
        "--k",
        type=int,
        choices=sorted(RATES),
        action="append",
        help=several,
    )
    parser.add_argument(
        "--losses",
        type=int,
        default=50,
        help="of each (default %(default)s)",
    )


def run(quick: bool, options: argparse.Namespace) -> list[Result]:
    """Rows of each k: moved and goodput, in ms, and what iperf3 saw."""
    n = min(options.losses, 5) if quick else options.losses
    sizes = options.k or sorted(RATES)
    results = []
    progress = Progress(
        [Step(f"k = {k}", n * (DOWN_S + UP_S)) for k in sizes]
    )
    for k in sizes:
        with progress.step():
            results += _losses(k, n)
    return results


@dataclass(frozen=True)
class Loss:
    """The instant just before a link's loss, by both clocks."""

    at_ns: int
    at_unix_s: float


def _losses(k: int, n: int) -> list[Result]:
    draw = random.Random(SEED)  # noqa: S311 - which link
    with TemporaryDirectory(prefix="hosenet-bench-") as folder:
        file = Path(folder) / "link-loss.yaml"
        file.write_text(
            EXPERIMENT.format(k=k, rate=RATES[k]), encoding="utf-8"
        )
        with testbed.up(file) as net:
            at = {"server 0": 2, f"server {k**3 // 4 - 1}": 2}
            tenant = net.tenants.add("a", bandwidth=BANDWIDTH, at=at)
            with _steady(tenant.vms, Path(folder), n):
                losses = [_lose(draw, net) for _ in range(n)]
        log = (standing_dir() / "keeper.log").read_text(encoding="utf-8")
        stamps = _stamps(Path(folder) / "received.txt")
        received, sent = (
            _intervals(Path(folder) / name)
            for name in ("server.txt", "client.txt")
        )
    moved = [_moved_ms(log, loss) for loss in losses]
    least = payload_bytes(tenant.wire_bps * WINDOW_NS / 1e9) * SHARE
    goodput = [_recovered_ms(stamps, loss, least) for loss in losses]
    extra = {
        "losses": n,
        "wire_mbps": tenant.wire_bps / 1e6,
        "iperf3_silent_ms_per_loss": 100
        * sum(float(line[4]) == 0 for line in received)
        / n,
        "iperf3_sent_again_per_loss": sum(int(line[8]) for line in sent)
        / n,
    }
    target, within = f"within {WITHIN_S:g} s", WITHIN_S * 1000
    return [
        Result(
            f"k = {k}: moved",
            "ms",
            samples=tuple(moved),
            target=target,
            meets=max(moved) <= within,
        ),
        Result(
            f"k = {k}: goodput",
            "ms",
            samples=tuple(goodput),
            target=target,
            meets=max(goodput) <= within,
            extra=extra,
        ),
    ]


def _lose(draw: random.Random, net: StandingNetwork) -> Loss:
    """Take down a link of the tenant's tree above its edge switches, and bring
    it back.
    """
    layout = ask(ShowLayout(), NetworkLayout)
    links = ask(ShowLinks(), tuple[LinkState, ...])
    way = [
        part
        for part in links
        if part.tenants and not part.name.startswith(("server", "a."))
    ]
    port = draw.choice(draw.choice(way).ports)
    bridge = next(
        part.bridge for part in layout.plan.ports if part.name == port
    )
    netns = layout.switches[bridge][1]
    inside = ("-n", netns) if netns else ()
    loss = Loss(time.monotonic_ns(), time.time())
    subprocess.run(
        ["ip", *inside, "link", "set", port, "down"], check=True, timeout=10
    )
    time.sleep(DOWN_S)
    subprocess.run(
        ["ip", *inside, "link", "set", port, "up"], check=True, timeout=10
    )
    time.sleep(UP_S)
    if trouble := net.tenants.show("a").trouble:
        raise RunFailed(trouble)
    return loss


@contextmanager
def _steady(vms: Sequence[VmPlace], folder: Path, n: int) -> Iterator[None]:
    """TCP from the first server's VMs to the last one's: our own, and iperf3."""
    near_one, near_two, far_one, far_two = vms
    with ExitStack() as stack:

        def start(
            vm: VmPlace, file: str, *command: str
        ) -> subprocess.Popen[bytes]:
            out = stack.enter_context((folder / file).open("wb"))
            inside = ["ip", "netns", "exec", Path(vm.netns).name, *command]
            process = subprocess.Popen(
                inside, stdin=subprocess.DEVNULL, stdout=out
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        start(far_one, "received.txt", sys.executable, "-c", RECEIVE)
        intervals = ("-i", "0.1", "-f", "k", "--forceflush")
        start(far_two, "server.txt", "iperf3", "-s", "-1", *intervals)
        time.sleep(1.0)
        start(near_one, "sent.txt", sys.executable, "-c", SEND, far_one.ip)
        lasts_s = round(n * (DOWN_S + UP_S + 1.0)) + 10
        start(
            near_two,
            "client.txt",
            "iperf3",
            "-c",
            far_two.ip,
            "-t",
            str(lasts_s),
            *intervals,
        )
        time.sleep(2.0)
        yield


def _intervals(file: Path) -> list[list[str]]:
    """The words of each line of 100 ms that iperf3 prints, its sums left out."""
    lines = (
        line.split()
        for line in file.read_text("utf-8").splitlines()
        if "sec" in line
    )
    return [
        line for line in lines if line[-1] not in ("sender", "receiver")
    ]


def _stamps(file: Path) -> list[tuple[int, int]]:
    """Instants in ns and bytes received until then; a last line cut short is
    left out.
    """
    lines = (
        file.read_text(encoding="ascii").rpartition("\n")[0].splitlines()
    )
    return [
        (int(at), int(total))
        for at, total in (line.split() for line in lines)
    ]


def _recovered_ms(
    stamps: Sequence[tuple[int, int]], loss: Loss, least_bytes: float
) -> float:
    """From the loss to the end of the first 100 ms with enough bytes, after the
    longest pause of the receiver that begins in the 100 ms after the loss.
    """
    until_ns = loss.at_ns + int(DOWN_S * 1e9)
    # With the last before the loss: the pause may begin with it.
    first = max(0, bisect_left(stamps, (loss.at_ns, 0)) - 1)
    within = stamps[first : bisect_left(stamps, (until_ns, 0))]
    hit_ns = loss.at_ns + WINDOW_NS
    pauses = [
        (b[0] - a[0], b[0]) for a, b in pairwise(within) if a[0] < hit_ns
    ]
    for end_ns in (
        range(max(pauses)[1] + WINDOW_NS, until_ns, STEP_NS)
        if pauses
        else ()
    ):
        received = _received_until(stamps, end_ns) - _received_until(
            stamps, end_ns - WINDOW_NS
        )
        if received >= least_bytes:
            return (end_ns - loss.at_ns) / 1e6
    return float("inf")


def _received_until(stamps: Sequence[tuple[int, int]], at_ns: int) -> int:
    place = bisect_left(stamps, (at_ns, 0))
    return stamps[place - 1][1] if place else 0


def _moved_ms(log: str, loss: Loss) -> float:
    """The keeper's first line after a loss that says that the tenant has moved."""
    for line in log.splitlines():
        if "has moved" in line:
            at = datetime.strptime(
                line[:23], "%Y-%m-%d %H:%M:%S,%f"
            ).astimezone()
            late_s = at.timestamp() - loss.at_unix_s
            # The log's instants are cut to milliseconds.
            if 0 <= late_s + 0.001 < DOWN_S:
                return late_s * 1000
    return float("inf")
