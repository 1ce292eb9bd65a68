"""The iperf3 agent: iperf3 between the VMs of a job, for a time.

A receiver runs a server for each of its senders (``iperf3 --server --one-off``).
Clients begin at the job's start, and send for its duration as fast as their VMs'
caps allow. Results are iperf3's JSON documents; received bytes are those that
the servers counted. The congestion control is that of the route to the tenant's
VMs, as iperf3 would need privileges to choose another.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from jobs.live.agent import Agent, AgentFailure, Channel
from jobs.live.agent_protocol import (
    AgentReport,
    ArrivedBytes,
    Plan,
    ReceivedPayload,
    SentPayload,
)
from jobs.live.command import end_groups, start_tied

OMITTED_S = 1
"""Seconds before iperf3 counts, in which connections reach their full rate and
empty the caps' buckets.
"""
BLOCK_BYTES = 8_192
"""iperf3 counts whole blocks. Its default of 128 kB is 2 % of the volume of 5 s
at 10 Mbit/s.
"""
_POLL_S = 0.01
# TCP_LISTEN in /proc/net/tcp.
_LISTENING = "0A"
_CONTROL = "sender_tcp_congestion"


@dataclass(frozen=True)
class Iperf3Plan(Plan):
    """The part of VM ``index`` in measurements among a job's VMs.

    ``sends``: ``(index, ip)`` of its receivers; ``receives``: its senders. The
    server for sender k listens at ``port`` + k. ``seconds``: iperf3 takes whole
    ones, and does not count the first unless it is the only one.
    """

    ip: str
    port: int
    seconds: int
    sends: tuple[tuple[int, str], ...]
    receives: tuple[int, ...]
    connect_timeout_s: float = 60.0

    def readdressed(self, ips: Sequence[str]) -> Iperf3Plan:
        sends = tuple((peer, ips[peer]) for peer, _ in self.sends)
        return replace(self, ip=ips[self.index], sends=sends)

    def remaining(
        self,
        report: AgentReport | None,
        arrived: ArrivedBytes,  # noqa: ARG002
    ) -> Iperf3Plan:
        """The plan of a new measurement, for the time that is left."""
        if report is None or report.start_ns is None:
            return self
        ran_s = (report.end_ns - report.start_ns) / 1e9
        return replace(
            self, seconds=max(1, math.ceil(self.seconds - ran_s))
        )


@dataclass
class _Process:
    """An iperf3 process, a ``server`` or a ``client``, with its output's file."""

    role: str
    peer: int
    output: IO[bytes]
    child: subprocess.Popen[bytes]
    result: dict[str, Any] = field(default_factory=dict)
    end_ns: int = 0


class Iperf3Agent(Agent):
    """Runs one :class:`Iperf3Plan`."""

    _plan: Iperf3Plan

    def __init__(
        self,
        plan: Iperf3Plan,
        channel: Channel,
    ) -> None:
        super().__init__(plan, channel)
        self._processes: list[_Process] = []

    def run(self) -> None:
        """Measure. Raises AgentFailure with iperf3's message if one fails."""
        plan = self._plan
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_all)
            # A server for each sender: one serves one client at a time.
            ports = set()
            for sender in plan.receives:
                port = plan.port + sender
                server = server_command(plan.ip, port)
                self._begin(stack, "server", sender, server)
                ports.add(port)
            self._until_listening(ports)
            self._start_together()
            for receiver, ip in plan.sends:
                self._begin(stack, "client", receiver, self._client(ip))
            self._until_ended()

    def report(self, error: str | None) -> AgentReport:
        """The report, with bytes of all processes that have ended well."""
        servers = self._ended_well("server")
        clients = self._ended_well("client")
        control: str | None = None
        if clients:
            control = clients[0].result["end"][_CONTROL]
        return replace(
            super().report(error),
            received=tuple(map(_received, servers)),
            sent=tuple(map(_sent, clients)),
            congestion_control=control,
        )

    def _ended_well(self, role: str) -> list[_Process]:
        """Processes with a result, which those that have failed lack."""
        return [
            process
            for process in self._processes
            if process.role == role and process.result
        ]

    def _client(self, ip: str) -> list[str]:
        plan = self._plan
        omitted_s = OMITTED_S if plan.seconds > OMITTED_S else 0
        command = client_command(
            receiver_ip=ip,
            sender_ip=plan.ip,
            port=plan.port + plan.index,
            counted_s=plan.seconds - omitted_s,
            omitted_s=omitted_s,
            block_bytes=BLOCK_BYTES,
        )
        timeout_ms = round(plan.connect_timeout_s * 1000)
        return [*command, "--connect-timeout", str(timeout_ms)]

    def _begin(
        self,
        stack: contextlib.ExitStack,
        role: str,
        peer: int,
        command: list[str],
    ) -> None:
        output = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        try:
            child = start_tied(command, output)
        except OSError as error:
            raise AgentFailure(
                f"cannot run iperf3: {error.strerror}"
            ) from None
        self._processes.append(_Process(role, peer, output, child))

    def _until_listening(self, ports: set[int]) -> None:
        """Waits until all servers listen, as the kernel says.

        A connection to find out would be the one that a server takes.
        """
        end_s = time.monotonic() + self._plan.connect_timeout_s
        while not ports <= listening(self._plan.ip):
            # One that has ended before it listened says why: waiting on
            # would hide it behind the time limit.
            for process in self._processes:
                if process.child.poll() is not None:
                    self._take_result(process)
            if time.monotonic() > end_s:
                raise AgentFailure(
                    f"iperf3 does not listen after {self._plan.connect_timeout_s} s"
                )
            time.sleep(_POLL_S)

    def _until_ended(self) -> None:
        with (
            selectors.DefaultSelector() as selector,
            contextlib.ExitStack() as stack,
        ):
            selector.register(self._channel, selectors.EVENT_READ)
            for process in self._processes:
                handle = os.pidfd_open(process.child.pid)
                stack.callback(os.close, handle)
                selector.register(handle, selectors.EVENT_READ, process)
            left = len(self._processes)
            while left:
                # Samples have the CPU time alone: iperf3 states bytes at its end.
                self._sample_when_due()
                for key, _ in selector.select(self._plan.progress_every_s):
                    if key.data is None:
                        self._channel.heard()
                        continue
                    selector.unregister(key.fileobj)
                    self._take_result(key.data)
                    left -= 1

    def _take_result(self, process: _Process) -> None:
        """Reads the result of an ended process.

        Raises AgentFailure with iperf3's message.
        """
        process.end_ns = time.monotonic_ns()
        code = process.child.wait()
        process.output.seek(0)
        text = process.output.read().decode("utf-8", "replace")
        try:
            # iperf3 may print a line for people after the document.
            result, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:
            result = {"error": text.strip()[-300:] or f"exit code {code}"}
        if code or "error" in result:
            complaint = result.get("error", f"exit code {code}")
            raise AgentFailure(
                f"iperf3 {process.role} for VM {process.peer}: {complaint}"
            )
        process.result = result

    def _end_all(self) -> None:
        children = [process.child for process in self._processes]
        end_groups([child for child in children if child.poll() is None])


def server_command(ip: str, port: int) -> list[str]:
    """The command of a server that ends with its first client."""
    command = ["iperf3", "--server", "--one-off", "--json"]
    return [*command, "--bind", ip, "--port", str(port)]


def client_command(
    *,
    receiver_ip: str,
    sender_ip: str,
    port: int,
    counted_s: int,
    omitted_s: int,
    block_bytes: int,
) -> list[str]:
    """The command of a client; it sends for both times, the omitted one first."""
    command = ["iperf3", "--client", receiver_ip, "--bind", sender_ip]
    command += ["--port", str(port), "--time", str(counted_s)]
    command += ["--omit", str(omitted_s), "--length", str(block_bytes)]
    return [*command, "--json"]


def _received(process: _Process) -> ReceivedPayload:
    return ReceivedPayload(
        peer=process.peer,
        size_bytes=int(process.result["end"]["sum_received"]["bytes"]),
        first_ns=None,
        last_ns=process.end_ns,
        reported_bps=received_bps(process.result),
    )


def _sent(process: _Process) -> SentPayload:
    end = process.result["end"]
    sent = end["sum_sent"]
    arrived_bytes = int(end["sum_received"]["bytes"])
    return SentPayload(
        peer=process.peer,
        # iperf3 3.18 was seen to report a sum of the sender that is 8 KiB less
        # than what had arrived.
        size_bytes=max(int(sent["bytes"]), arrived_bytes),
        acknowledged_bytes=arrived_bytes,
        acknowledged_ns=process.end_ns,
        retransmits=int(sent.get("retransmits", 0)),
    )


def received_bps(
    document: Mapping[str, Any],
    uncounted_s: int = 0,
) -> float:
    """Payload rate in bit/s that a receiver counted, by its intervals.

    iperf3's own mean is too low: a server counts until it learns of the end, a
    tenth of a second in which only the last data arrive. ``uncounted_s``: time
    at the test's end that is left out, too. Raises KeyError for a document that
    is not iperf3's.
    """
    duration_s = document["start"]["test_start"]["duration"] - uncounted_s
    intervals = [interval["sum"] for interval in document["intervals"]]
    # An interval is one second: those that begin in the last half of the last
    # one are after the end.
    within = [
        interval
        for interval in intervals
        if not interval["omitted"] and interval["start"] < duration_s - 0.5
    ]
    if not within:
        return float(document["end"]["sum_received"]["bits_per_second"])
    counted_bytes: float = sum(interval["bytes"] for interval in within)
    time_s: float = sum(interval["seconds"] for interval in within)
    return 8 * counted_bytes / time_s


def listening(
    ip: str,
    process: int | str = "self",
) -> set[int]:
    """Ports of listening sockets at an IPv4 address.

    ``process``: of its network namespace.
    """
    # The kernel prints an address as a number in this machine's byte order.
    address = f"{int.from_bytes(socket.inet_aton(ip), 'little'):08X}"
    table = Path(f"/proc/{process}/net/tcp").read_text()
    ports = set()
    for line in table.splitlines()[1:]:
        _, local, _, state, *_ = line.split()
        local_address, port = local.split(":")
        if state == _LISTENING and local_address == address:
            ports.add(int(port, 16))
    return ports
