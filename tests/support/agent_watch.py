"""One way to watch a job's agents through to their end, and plans for them on the loopback."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.live.agent_pool import AgentPool, Message
from jobs.live.agent_protocol import (
    AgentExited,
    AgentProgress,
    AgentRefused,
    AgentReport,
    AgentStarted,
    Ready,
)
from jobs.live.patterns import VmTransfer
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan
from tests.support.own_addresses import loopback_subnet

# Seconds of silence after which a test has failed; none waits for it. Counted in turns of a loop
# and not by a clock: a machine that is paused in between must not fail a test.
PATIENCE = 60
PORT = 7000

# What the machine uses anyway needs neither privileges nor a module.
CONGESTION_CONTROL = (
    Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
)


@dataclass
class Outcome:
    """Everything one agent said."""

    messages: list[Message] = field(default_factory=list)

    def kinds(self) -> list[type]:
        """The kinds of messages in order, progress samples left out."""
        return [
            type(m)
            for m in self.messages
            if not isinstance(m, AgentProgress)
        ]

    @property
    def report(self) -> AgentReport:
        (report,) = [m for m in self.messages if isinstance(m, AgentReport)]
        return report

    @property
    def exited(self) -> AgentExited:
        (exited,) = [m for m in self.messages if isinstance(m, AgentExited)]
        return exited

    @property
    def pid(self) -> int:
        (started,) = [
            m for m in self.messages if isinstance(m, AgentStarted)
        ]
        return started.pid


class Watch:
    """Collects a pool's messages by agent."""

    def __init__(self, pool: AgentPool) -> None:
        self._pool = pool
        self._outcomes: dict[str, Outcome] = {}

    def outcome(self, agent_id: str) -> Outcome:
        return self._outcomes.setdefault(agent_id, Outcome())

    def until(self, agent_ids: Sequence[str], kind: type) -> list[Outcome]:
        """Poll until each of the agents has said something of this kind (or has ended)."""
        silent = 0
        final = (kind, AgentExited, AgentRefused)
        outcomes = [self.outcome(agent_id) for agent_id in agent_ids]
        while not all(
            any(isinstance(m, final) for m in o.messages) for o in outcomes
        ):
            messages = self._pool.poll(1.0)
            silent += not messages
            assert silent < PATIENCE, (
                f"still waiting for {kind.__name__}: {outcomes}"
            )
            for agent_id, message in messages:
                self.outcome(agent_id).messages.append(message)
        return outcomes

    def run_together(self, agent_ids: Sequence[str]) -> list[Outcome]:
        """Wait until all are ready, begin, and wait for all to end."""
        for outcome in self.until(agent_ids, Ready):
            assert Ready in outcome.kinds(), outcome
        # Ahead, so that all agents have heard of the instant when it comes.
        self._pool.begin(agent_ids, time.monotonic_ns() + 10_000_000)
        return self.until(agent_ids, AgentExited)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Try again and again until the condition holds."""
    for _ in range(PATIENCE * 100):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"still waiting for {what}")


def loopback_ips(n: int) -> list[str]:
    """Addresses below 127/8 that no other test has."""
    # All of 127/8 leads to the loopback device: no address has to be added
    # to it.
    subnet = loopback_subnet()
    return [f"{subnet}.{1 + i}" for i in range(n)]


def transfer_plans(
    transfers: Sequence[VmTransfer], ips: Sequence[str]
) -> list[TransferPlan]:
    """A plan for each VM of the pattern."""
    return [
        TransferPlan(
            index=i,
            ip=ip,
            port=PORT,
            sends=tuple(
                Outgoing(t.receiver, ips[t.receiver], PORT, t.size_bytes)
                for t in transfers
                if t.sender == i
            ),
            receives=tuple(
                Incoming(t.sender, t.size_bytes)
                for t in transfers
                if t.receiver == i
            ),
            congestion_control=CONGESTION_CONTROL,
            progress_every_s=0.02,
        )
        for i, ip in enumerate(ips)
    ]
