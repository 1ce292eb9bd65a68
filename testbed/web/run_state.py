"""The state of a run as the live page shows it, folded from its events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed import events
from testbed.foreign_text import plain_text
from testbed.record.job_history import event_sentence, kind_of_reason
from testbed.record.job_lives import JobLife
from testbed.record.metrics import LIVE, Tally
from testbed.web.page_layout import PageLayout, page_layout

SHOWN_JOBS = 200
SHOWN_ENDED = 50
SHOWN_REASONS = 12
LOG_LINES = 40
LONGEST_TEXT = 300
NOT_JUDGED = "not judged yet"
"""The fidelity of a live run before its end."""

FAILING_PARTS = {
    events.LinkFailed: "link",
    events.LinkRestored: "link",
    events.ServerFailed: "server",
    events.ServerRestored: "server",
}
"""The kind of part that an event is about; the event's field of that name is the
part's number.
"""
_FAILURES = (events.LinkFailed, events.ServerFailed)


def shown(text: object) -> str:
    """Text from a run as the page shows it: without control characters, at most
    300 characters and a mark.
    """
    plain = plain_text(str(text))
    if len(plain) <= LONGEST_TEXT:
        return plain
    return f"{plain[:LONGEST_TEXT]}…"


class SlotUse:
    """Numbers of VMs by drawn node and by job or tenant.

    A drawn node is a server, or in a large data centre all servers of a rack.
    """

    def __init__(self, layout: PageLayout) -> None:
        self._node_of = layout.node_of
        self._counts: dict[int, Counter[str]] = {}

    def add(self, server: int, name: str, count: int) -> None:
        # A damaged run folder may name servers that do not exist.
        if 0 <= server < len(self._node_of):
            node = self._node_of[server]
            self._counts.setdefault(node, Counter())[name] += count

    def to_json(self) -> dict[int, list[list[Any]]]:
        """Drawn node -> pairs of name and number of VMs, in order of adding."""
        return {
            node: list(map(list, counts.items()))
            for node, counts in self._counts.items()
        }


class RunState:
    """A run up to the last event that was followed.

    Jobs are those of :class:`Tally`; beside it are the parts that are down, the
    last sample of the links and the latest lines of the log.
    """

    def __init__(self) -> None:
        self.tally = Tally()
        self.layout: PageLayout | None = None
        self.down: set[tuple[str, int]] = set()
        self.ended: Counter[str] = Counter()
        self.rejections: Counter[str] = Counter()
        self.controller_kills = 0
        self.switch_restarts = 0
        self._active: dict[str, JobLife] = {}
        self._recent: deque[JobLife] = deque(maxlen=SHOWN_ENDED)
        self._log: deque[tuple[float, str]] = deque(maxlen=LOG_LINES)
        self._sample: events.LinkSample | None = None

    @property
    def now_s(self) -> float:
        return self.tally.lives.now_s

    def follow(self, event: events.Event) -> None:
        """Adds an event to the state, in O(1); the run's first event also gives
        the layout.
        """
        self.tally.feed(event)
        if isinstance(event, events.LinkSample):
            self._sample = event
        elif isinstance(event, events.JobSubmitted):
            # Shared with the tally, which keeps it up to date.
            life = self.tally.lives.jobs[str(event.job["id"])]
            self._active[life.job_id] = life
        elif isinstance(event, events.JobEnded):
            self._end(event)
        elif isinstance(event, events.RunStarted):
            self.layout = page_layout(event.topology)
        else:
            self._follow_network(event)

    def _end(self, event: events.JobEnded) -> None:
        life = self._active.pop(event.job_id, None)
        # A damaged run folder may end jobs that were never submitted.
        if life is None:
            return
        self.ended[event.outcome] += 1
        self._recent.append(life)
        if event.outcome == "rejected":
            self.rejections[kind_of_reason(event.reason)] += 1
        elif event.outcome != "finished":
            self._note(f"{event.job_id} {event_sentence(event)}")

    def _follow_network(self, event: events.Event) -> None:
        """Adds an event of the network or of the run's fidelity to the state."""
        kind = FAILING_PARTS.get(type(event))
        if kind is not None:
            self._fail_or_restore(event, kind)
        elif isinstance(event, events.ControllerKilled):
            self.controller_kills += 1
            self._note("the controller was killed, and started again")
        elif isinstance(event, events.SwitchRestarted):
            self.switch_restarts += 1
            self._note(f"{self.node_name(event.switch)} was restarted")
        elif (
            isinstance(event, events.FidelityNoted) and event.level != "ok"
        ):
            self._note(f"fidelity {event.level}: {event.reason}")

    def _fail_or_restore(self, event: events.Event, kind: str) -> None:
        number = int(getattr(event, kind))
        name = self._part_name(kind, number)
        if isinstance(event, _FAILURES):
            self.down.add((kind, number))
            self._note(f"{name} is lost")
        else:
            self.down.discard((kind, number))
            self._note(f"{name} is back")

    def _part_name(self, kind: str, number: int) -> str:
        if kind == "server":
            return self.node_name(number)
        ends = self.tally.started.topology["links"]
        if not 0 <= number < min(len(ends["lower"]), len(ends["upper"])):
            return f"link {number}"
        lower = self.node_name(ends["lower"][number])
        return f"{lower} – {self.node_name(ends['upper'][number])}"

    def node_name(self, node: int) -> str:
        """A node's name; its number where a damaged run folder has no name."""
        names = self.tally.started.topology["names"]
        if 0 <= node < len(names):
            return str(names[node])
        return f"node {node}"

    def _note(self, text: str) -> None:
        self._log.append((self.now_s, shown(text)))

    # -- the state as the page and its /metrics show it

    def active(self) -> list[JobLife]:
        """Jobs that have been submitted and have not ended, in that order."""
        return list(self._active.values())

    def reserved_bps(self) -> NDArray[np.float64]:
        """Bandwidth that running jobs hold, by directed link."""
        reserved = np.zeros_like(self._capacity_bps)
        for life in self._active.values():
            if life.hold is None:
                continue
            for link, bps in life.hold.links:
                if 0 <= link < len(reserved):
                    reserved[link] += bps
        return reserved

    def sent_bps(self) -> NDArray[np.float64] | None:
        """Rates of the last sample by directed link; None: none was measured."""
        if self._sample is None:
            return None
        sent = np.zeros_like(self._capacity_bps)
        for link, bps, _ in self._sample.links:
            if 0 <= link < len(sent):
                sent[int(link)] = bps
        return sent

    @property
    def _capacity_bps(self) -> NDArray[np.float64]:
        """Capacities by directed link; empty before the run's first event."""
        if self.layout is None:
            return np.zeros(0)
        return self.layout.capacity_bps

    def _reserved_share(self) -> float:
        """Share of all links' capacity that is reserved; 0 without links."""
        capacity_bps = float(self._capacity_bps.sum())
        if capacity_bps == 0:
            return 0.0
        return float(self.reserved_bps().sum()) / capacity_bps

    def totals(self) -> dict[str, float]:
        """Metrics that the page draws over time, at ``t``."""
        running = 0
        slots = 0
        for life in self._active.values():
            if life.hold is not None:
                running += 1
                slots += life.hold.n_slots
        return {
            "t": self.now_s,
            "running": running,
            "waiting": len(self._active) - running,
            "slots_used": slots,
            "reserved_share": self._reserved_share(),
        }

    def frame(self) -> dict[str, Any]:
        """All that changes on the page, as one JSON value."""
        frame: dict[str, Any] = {
            "kind": "frame",
            "totals": self.totals(),
            "ended": dict(self.ended),
            "jobs": self._jobs(),
            "more_jobs": max(0, len(self._active) - SHOWN_JOBS),
            "recent": [self._row(life) for life in reversed(self._recent)],
            "rejections": self._rejections(),
            "log": list(self._log),
            "fidelity": self._fidelity_and_notes(),
            "controller": self._restarts(),
        }
        if self.layout is not None:
            frame |= self._drawing(self.layout)
        return frame

    def _drawing(self, layout: PageLayout) -> dict[str, Any]:
        """Use of each drawn link, VMs by drawn node, and the parts that are down."""
        sent = self.sent_bps()
        return {
            "reserved": layout.use(self.reserved_bps()),
            "sent": None if sent is None else layout.use(sent),
            "placed": self._placed(layout),
            "down": self._down(layout),
        }

    def _jobs(self) -> list[list[Any]]:
        """Rows of the first jobs: running before waiting ones, which may be
        thousands.
        """
        # False, for those that hold something, comes before True.
        ordered = sorted(
            self._active.values(), key=lambda life: life.hold is None
        )
        return [self._row(life) for life in ordered[:SHOWN_JOBS]]

    def _row(self, life: JobLife) -> list[Any]:
        """The fields of ``ROW`` in the page's script."""
        request = life.request
        reason = life.reason if life.phase == "ended" else life.wait_reason
        return [
            shown(life.job_id),
            shown(request.get("application") or ""),
            life.outcome if life.phase == "ended" else life.phase,
            request["n_vms"],
            life.granted_bps or request["bandwidth_bps"],
            request["submit_s"],
            life.start_s,
            life.estimate_s,
            self._progress(life),
            life.measured_s,
            request.get("deadline_s"),
            life.tier,
            shown(reason) if life.phase != "running" else "",
        ]

    def _progress(self, life: JobLife) -> float | None:
        """The share of a job that is done: of its volume where it reports that,
        else of its estimated time.
        """
        if life.share is not None:
            return round(min(1.0, life.share), 3)
        if life.start_s is None or not life.estimate_s:
            return None
        # A simulated job reports no share: its time says how far it is.
        until_s = self.now_s if life.end_s is None else life.end_s
        share = (until_s - life.start_s) / life.estimate_s
        return round(min(1.0, share), 3)

    def _placed(self, layout: PageLayout) -> dict[int, list[list[Any]]]:
        """Drawn node -> pairs of job and number of VMs."""
        slots = SlotUse(layout)
        for life in self._active.values():
            if life.hold is None:
                continue
            for server, count in life.vms_on:
                slots.add(server, shown(life.job_id), count)
        return slots.to_json()

    def _down(self, layout: PageLayout) -> dict[str, list[int]]:
        """Drawn links and nodes with a part that is down.

        A drawn one may stand for several links, or for all servers of a rack.
        """
        links = set()
        nodes = set()
        for kind, number in self.down:
            if kind == "link" and 0 <= number < len(layout.link_of):
                links.add(layout.link_of[number])
            if kind == "server" and 0 <= number < len(layout.node_of):
                nodes.add(layout.node_of[number])
        return {"links": sorted(links), "nodes": sorted(nodes)}

    def _rejections(self) -> list[tuple[str, int]]:
        common = self.rejections.most_common(SHOWN_REASONS)
        return [(shown(reason), count) for reason, count in common]

    def fidelity(self) -> str | None:
        """The fidelity verdict on a live run; None for a simulated one.

        It is there at the run's end alone, which weighs earlier notes against
        the evidence of all jobs.
        """
        if self.tally.started.backend == LIVE and self.tally.ended is None:
            return NOT_JUDGED
        return self.tally.fidelity().verdict

    def _fidelity_and_notes(self) -> dict[str, Any]:
        notes = [
            (note.t, note.level, shown(note.check), shown(note.reason))
            for note in self.tally.notes[-LOG_LINES:]
        ]
        return {"verdict": self.fidelity(), "notes": notes}

    def _restarts(self) -> str:
        """Restarts of controller and switches, in words; empty if there were none."""
        parts = []
        if self.controller_kills:
            parts.append(f"restarted {times(self.controller_kills)}")
        if self.switch_restarts:
            restarts = times(self.switch_restarts)
            parts.append(f"a switch restarted {restarts}")
        return ", ".join(parts)


def times(n: int) -> str:
    """``once`` or ``3 times``."""
    return "once" if n == 1 else f"{n} times"


def samples_over_time(
    stream: list[events.Event], n: int
) -> Iterator[dict[str, float]]:
    """Totals at evenly spaced moments of the run: at most ``n``, and its end."""
    if not stream:
        return
    begin_s = stream[0].t
    # All events of a short simulated run may be of one instant.
    step_s = max(stream[-1].t - begin_s, 1e-9) / n
    state = RunState()
    next_s = begin_s
    for event in stream:
        if event.t > next_s:
            yield {**state.totals(), "t": next_s}
            # Moments that passed without an event would repeat this point.
            n_skipped = int((event.t - next_s) / step_s)
            next_s += step_s * (n_skipped + 1)
        state.follow(event)
    yield state.totals()
