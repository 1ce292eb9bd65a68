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
from typing import Any

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
DOWN_S = 1.2
UP_S = 0.4
WINDOW_NS = 100_000_000
STEP_NS = 1_000_000
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
    n = options.losses
    if quick:
        n = min(n, 5)
    sizes = options.k or sorted(RATES)
    results = []
    progress = Progress(
        [Step(f"k = {k}", n * (DOWN_S + UP_S)) for k in sizes]
    )
    for k in sizes:
        with progress.step():
            results += _rows(k, _losses(k, n))
    return results


@dataclass(frozen=True)
class Loss:
    """The instant just before a link's loss, by both clocks."""

    at_ns: int
    at_unix_s: float


@dataclass(frozen=True)
class Noted:
    """All losses of a network, and what was written meanwhile.

    ``stamps``: instants in ns, and bytes that TCP had received until then;
    ``received``, ``sent``: words of the lines that iperf3's two sides print.
    """

    losses: list[Loss]
    wire_bps: int
    log: str
    stamps: list[tuple[int, int]]
    received: list[list[str]]
    sent: list[list[str]]


def _losses(k: int, n: int) -> Noted:
    """A network, its tenant and ``n`` losses, one after another."""
    draw = random.Random(SEED)  # noqa: S311 - which link
    with TemporaryDirectory(prefix="hosenet-bench-") as name:
        folder = Path(name)
        file = folder / "link-loss.yaml"
        file.write_text(
            EXPERIMENT.format(k=k, rate=RATES[k]), encoding="utf-8"
        )
        # VMs on the first and the last server, which are in different pods.
        with testbed.up(file) as net:
            at = {"server 0": 2, f"server {k**3 // 4 - 1}": 2}
            tenant = net.tenants.add("a", bandwidth=BANDWIDTH, at=at)
            with _steady(tenant.vms, folder, n):
                losses = [_lose(draw, net) for _ in range(n)]
        log = (standing_dir() / "keeper.log").read_text(encoding="utf-8")
        return Noted(
            losses=losses,
            wire_bps=tenant.wire_bps,
            log=log,
            stamps=_stamps(folder / "received.txt"),
            received=_intervals(folder / "server.txt"),
            sent=_intervals(folder / "client.txt"),
        )


def _rows(k: int, noted: Noted) -> list[Result]:
    least = payload_bytes(noted.wire_bps * WINDOW_NS / 1e9) * SHARE
    moved_ms = []
    goodput_ms = []
    for loss in noted.losses:
        moved_ms.append(_moved_ms(noted.log, loss))
        goodput_ms.append(_recovered_ms(noted.stamps, loss, least))
    return [
        _row(f"k = {k}: moved", moved_ms, {}),
        _row(f"k = {k}: goodput", goodput_ms, _facts(noted)),
    ]


def _row(name: str, times_ms: list[float], extra: dict[str, Any]) -> Result:
    return Result(
        name,
        "ms",
        samples=tuple(times_ms),
        target=f"within {WITHIN_S:g} s",
        meets=max(times_ms) <= WITHIN_S * 1000,
        extra=extra,
    )


def _facts(noted: Noted) -> dict[str, Any]:
    """The tenant's rate on the wire, and iperf3's two sides, per loss."""
    n = len(noted.losses)
    # Of an interval's words the fifth is the bytes received, and the ninth
    # the segments sent again.
    silent = sum(float(line[4]) == 0 for line in noted.received)
    sent_again = sum(int(line[8]) for line in noted.sent)
    return {
        "losses": n,
        "wire_mbps": noted.wire_bps / 1e6,
        # An interval lasts 100 ms.
        "iperf3_silent_ms_per_loss": 100 * silent / n,
        "iperf3_sent_again_per_loss": sent_again / n,
    }


def _lose(draw: random.Random, net: StandingNetwork) -> Loss:
    """Take down a link of the tenant's tree above its edge switches, and bring
    it back.
    """
    port = _drawn_port(draw)
    netns = _namespace_of(port)
    loss = Loss(time.monotonic_ns(), time.time())
    _set_link(port, netns, "down")
    time.sleep(DOWN_S)
    _set_link(port, netns, "up")
    time.sleep(UP_S)
    if trouble := net.tenants.show("a").trouble:
        raise RunFailed(trouble)
    return loss


def _drawn_port(draw: random.Random) -> str:
    """A port of a link that carries the tenant, between two switches."""
    ports = []
    for link in ask(ShowLinks(), tuple[LinkState, ...]):
        # A server's own link has no other beside it, and "a." are the VMs'.
        if link.tenants and not link.name.startswith(("server", "a.")):
            ports.append(link.ports)
    return draw.choice(draw.choice(ports))


def _namespace_of(port: str) -> str | None:
    """The namespace of the switch that has a port; None: the machine's own."""
    layout = ask(ShowLayout(), NetworkLayout)
    for planned in layout.plan.ports:
        if planned.name == port:
            return layout.switches[planned.bridge][1]
    raise RunFailed(f"no bridge has the port {port}")


def _set_link(port: str, netns: str | None, state: str) -> None:
    command = ["ip", "link", "set", port, state]
    if netns:
        command = ["ip", "-n", netns, "link", "set", port, state]
    subprocess.run(command, check=True, timeout=10)


@contextmanager
def _steady(vms: Sequence[VmPlace], folder: Path, n: int) -> Iterator[None]:
    """TCP from the first server's VMs to the last one's: our own, and iperf3."""
    near_one, near_two, far_one, far_two = vms
    own_receiver = (sys.executable, "-c", RECEIVE)
    own_sender = (sys.executable, "-c", SEND, far_one.ip)
    intervals = ("-i", "0.1", "-f", "k", "--forceflush")
    server = ("iperf3", "-s", "-1", *intervals)
    # Longer than all losses are expected to take: it ends with the block.
    lasts_s = round(n * (DOWN_S + UP_S + 1.0)) + 10
    duration = ("-t", str(lasts_s))
    client = ("iperf3", "-c", far_two.ip, *duration, *intervals)
    with ExitStack() as stack:
        _start(stack, far_one, folder / "received.txt", own_receiver)
        _start(stack, far_two, folder / "server.txt", server)
        time.sleep(1.0)
        _start(stack, near_one, folder / "sent.txt", own_sender)
        _start(stack, near_two, folder / "client.txt", client)
        time.sleep(2.0)
        yield


def _start(
    stack: ExitStack, vm: VmPlace, file: Path, command: Sequence[str]
) -> None:
    """A program in a VM's namespace that prints to a file, until the stack
    closes.
    """
    out = stack.enter_context(file.open("wb"))
    inside = ["ip", "netns", "exec", Path(vm.netns).name, *command]
    process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=out)
    # Callbacks run backwards: it is ended, then waited for.
    stack.callback(process.wait)
    stack.callback(process.terminate)


def _intervals(file: Path) -> list[list[str]]:
    """The words of each line of 100 ms that iperf3 prints, its sums left out."""
    intervals = []
    for line in file.read_text("utf-8").splitlines():
        words = line.split()
        if "sec" in line and words[-1] not in ("sender", "receiver"):
            intervals.append(words)
    return intervals


def _stamps(file: Path) -> list[tuple[int, int]]:
    """Instants in ns and bytes received until then; a last line cut short is
    left out.
    """
    whole_lines = file.read_text(encoding="ascii").rpartition("\n")[0]
    stamps = []
    for line in whole_lines.splitlines():
        at_ns, total = line.split()
        stamps.append((int(at_ns), int(total)))
    return stamps


def _recovered_ms(
    stamps: Sequence[tuple[int, int]], loss: Loss, least_bytes: float
) -> float:
    """From the loss to the end of the first 100 ms with enough bytes, after the
    longest pause of the receiver that begins in the 100 ms after the loss.
    """
    until_ns = loss.at_ns + int(DOWN_S * 1e9)
    pause_end_ns = _pause_end_ns(stamps, loss, until_ns)
    if pause_end_ns is None:
        return float("inf")
    for end_ns in range(pause_end_ns + WINDOW_NS, until_ns, STEP_NS):
        before = _received_until(stamps, end_ns - WINDOW_NS)
        if _received_until(stamps, end_ns) - before >= least_bytes:
            return (end_ns - loss.at_ns) / 1e6
    return float("inf")


def _pause_end_ns(
    stamps: Sequence[tuple[int, int]], loss: Loss, until_ns: int
) -> int | None:
    """The end of the receiver's longest pause, of equal ones the last's; None
    where there is none.
    """
    # With the last before the loss: the pause may begin with it.
    first = max(0, bisect_left(stamps, (loss.at_ns, 0)) - 1)
    within = stamps[first : bisect_left(stamps, (until_ns, 0))]
    pauses = []
    for (begin_ns, _), (end_ns, _) in pairwise(within):
        if begin_ns < loss.at_ns + WINDOW_NS:
            pauses.append((end_ns - begin_ns, end_ns))
    if not pauses:
        return None
    return max(pauses)[1]


def _received_until(stamps: Sequence[tuple[int, int]], at_ns: int) -> int:
    place = bisect_left(stamps, (at_ns, 0))
    if place == 0:
        return 0
    return stamps[place - 1][1]


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
