"""The iperf3 agent: iperf3 between the VMs of a job, for a time.

Each receiver runs one server a sender (``iperf3 --server --one-off``); the
clients begin at the job's start and send for its duration, as fast as their
VMs' caps let them. Each process's result is its JSON document: the receivers'
bytes are what their servers counted. TCP's congestion control is that of the
route to the tenant's VMs: choosing another one would need privileges.
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
    Arrived,
    Plan,
    ReceivedPayload,
    Sent,
)
from jobs.live.command import end_groups, start_tied

OMITTED_S = 1
"""Seconds before iperf3 counts: connections reach their full rate, buckets are
emptied.
"""
BLOCK_BYTES = 8_192
"""iperf3 counts whole blocks: its usual 128 kB are 2 % of what 10 Mbit/s bring
in 5 s.
"""
_POLL_S = 0.01
_LISTENING = "0A"  # in /proc/net/tcp
_CONTROL = "sender_tcp_congestion"


@dataclass(frozen=True)
class Iperf3Plan(Plan):
    """The part of VM ``index``: ``sends`` are its receivers' ``(index, ip)``,
    ``receives`` senders.

    The server for sender k listens at ``port`` + k. iperf3 takes whole
    ``seconds``, of which it does not count the first, unless it is the only
    one.
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
        arrived: Arrived,  # noqa: ARG002
    ) -> Iperf3Plan:
        """A new measurement for the time that is left."""
        if report is None or report.start_ns is None:
            return self
        ran_s = (report.end_ns - report.start_ns) / 1e9
        return replace(
            self, seconds=max(1, math.ceil(self.seconds - ran_s))
        )


@dataclass
class _Process:
    """One iperf3, a ``server`` or a ``client``; its output goes to a file
    without a name.
    """

    role: str
    peer: int
    output: IO[bytes]
    child: subprocess.Popen[bytes]
    result: dict[str, Any] = field(default_factory=dict)
    end_ns: int = 0


class Iperf3Agent(Agent):
    """Runs one :class:`Iperf3Plan`."""

    _plan: Iperf3Plan

    def __init__(self, plan: Iperf3Plan, channel: Channel) -> None:
        super().__init__(plan, channel)
        self._processes: list[_Process] = []

    def run(self) -> None:
        """Measure; raises AgentFailure with what iperf3 says where one of them
        fails.
        """
        plan = self._plan
        with contextlib.ExitStack() as stack:
            stack.callback(self._end_all)
            for sender in plan.receives:
                self._begin(stack, "server", sender, self._server(sender))
            self._until_listening(
                {plan.port + sender for sender in plan.receives}
            )
            self._start_together()
            for receiver, ip in plan.sends:
                self._begin(stack, "client", receiver, self._client(ip))
            self._until_ended()

    def report(self, error: str | None) -> AgentReport:
        """The measured bytes of every peer whose process has ended well."""
        ended = [process for process in self._processes if process.result]
        clients = [process for process in ended if process.role == "client"]
        return replace(
            super().report(error),
            received=tuple(
                _received(each) for each in ended if each.role == "server"
            ),
            sent=tuple(map(_sent, clients)),
            congestion_control=next(
                (each.result["end"][_CONTROL] for each in clients), None
            ),
        )

    def _server(self, sender: int) -> list[str]:
        port = str(self._plan.port + sender)
        return [
            "iperf3",
            "--server",
            "--one-off",
            "--bind",
            self._plan.ip,
            "--port",
            port,
        ]

    def _client(self, ip: str) -> list[str]:
        plan = self._plan
        omitted = OMITTED_S if plan.seconds > OMITTED_S else 0
        return [
            *(
                "iperf3",
                "--client",
                ip,
                "--bind",
                plan.ip,
                "--port",
                str(plan.port + plan.index),
            ),
            *(
                "--time",
                str(plan.seconds - omitted),
                "--omit",
                str(omitted),
            ),
            *("--length", str(BLOCK_BYTES)),
            *(
                "--connect-timeout",
                str(round(plan.connect_timeout_s * 1000)),
            ),
        ]

    def _begin(
        self,
        stack: contextlib.ExitStack,
        role: str,
        peer: int,
        arguments: list[str],
    ) -> None:
        output = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        try:
            child = start_tied([*arguments, "--json"], output)
        except OSError as error:
            raise AgentFailure(
                f"cannot run iperf3: {error.strerror}"
            ) from None
        self._processes.append(_Process(role, peer, output, child))

    def _until_listening(self, ports: set[int]) -> None:
        """Until all servers listen: a connection to find out would be their
        only one.
        """
        end_s = time.monotonic() + self._plan.connect_timeout_s
        while not ports <= listening(self._plan.ip):
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
                # iperf3 states its bytes at its end only.
                self._sample_when_due()
                for key, _ in selector.select(self._plan.progress_every_s):
                    if key.data is None:
                        self._channel.heard()
                        continue
                    selector.unregister(key.fileobj)
                    self._take_result(key.data)
                    left -= 1

    def _take_result(self, process: _Process) -> None:
        """Read the JSON document of one that has ended; raises AgentFailure
        with its complaint.
        """
        process.end_ns = time.monotonic_ns()
        code = process.child.wait()
        process.output.seek(0)
        text = process.output.read().decode("utf-8", "replace")
        try:
            # A line for people may follow it.
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
        end_groups(
            [
                each.child
                for each in self._processes
                if each.child.poll() is None
            ]
        )


def _received(process: _Process) -> ReceivedPayload:
    counted = int(process.result["end"]["sum_received"]["bytes"])
    reported_bps = received_bps(process.result)
    return ReceivedPayload(
        process.peer, counted, None, process.end_ns, reported_bps
    )


def _sent(process: _Process) -> Sent:
    end = process.result["end"]
    sent = end["sum_sent"]
    received = end["sum_received"]
    retransmits = int(sent.get("retransmits", 0))
    counted = int(received["bytes"])
    # A sender's sum was seen (iperf3 3.18) to lack 8 KiB that had arrived.
    size_bytes = max(int(sent["bytes"]), counted)
    return Sent(
        process.peer, size_bytes, counted, process.end_ns, retransmits
    )


def received_bps(
    document: Mapping[str, Any], uncounted_s: int = 0
) -> float:
    """Payload that a receiver counted over the test's time, in bit/s, by its
    intervals.

    A server counts on until it hears of the end: its own mean has a tenth of a
    second more, of which what was still on its way fills only a part.
    ``uncounted_s``: of the test's end, left out as well. KeyError without what
    iperf3 writes.
    """
    lasts_s = document["start"]["test_start"]["duration"] - uncounted_s
    counted = [each["sum"] for each in document["intervals"]]
    within = [
        one
        for one in counted
        if not one["omitted"] and one["start"] < lasts_s - 0.5
    ]
    if not within:
        return float(document["end"]["sum_received"]["bits_per_second"])
    counted_bytes: float = sum(one["bytes"] for one in within)
    time_s: float = sum(one["seconds"] for one in within)
    return 8 * counted_bytes / time_s


def listening(ip: str, process: int | str = "self") -> set[int]:
    """Ports of a process's network namespace at which somebody listens on an
    IPv4 address.
    """
    # The kernel prints the address as the bytes of a number of this machine.
    address = f"{int.from_bytes(socket.inet_aton(ip), 'little'):08X}"
    rows = [
        line.split()
        for line in Path(f"/proc/{process}/net/tcp")
        .read_text()
        .splitlines()[1:]
    ]
    own = [row[1].split(":") for row in rows if row[3] == _LISTENING]
    return {int(port, 16) for where, port in own if where == address}
