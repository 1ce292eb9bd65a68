"""Lost links and servers during a run, and the jobs that they stop.

A running job whose tree has lost a link on the paths between its VMs moves to
the first other root that has room, with its VMs where they are. Where none has,
its policy's :data:`~testbed.failures.OnFailure` says what becomes of it. A job
that waits for its link is tried again whenever something is freed. A
reservation for later moves too; if it cannot, the same is decided when its time
comes.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

from testbed import events
from testbed.embedding.placement import Placement
from testbed.engine.engine_state import EngineState
from testbed.engine.job_states import JobState, Phase
from testbed.failures import Failure, OnFailure
from testbed.reservation.rerooting import links_used, reroot
from testbed.schedulers import actions as act
from topologies.datacentre import up


class Outages:
    """The failures of one run: those to come, and those that last."""

    def __init__(
        self,
        engine: EngineState,
        failures: tuple[Failure, ...],
        on_failure: OnFailure,
    ) -> None:
        self._engine = engine
        self._on_failure = on_failure
        self.failures = failures
        self.lasting = False  # True while a link or a server is lost
        self.put_off = False  # True where cut jobs are to be tried again
        self._links: set[int] = set()
        self._servers: set[int] = set()
        self._cut: dict[str, None] = {}
        # Jobs that were stopped, and whether they wait again: the policy has to
        # hear of them.
        self.unreported: list[tuple[str, bool]] = []

    def due(self, number: int) -> None:
        """Brings the failure of that number about, and sees to the jobs that it
        concerns.
        """
        failure = self.failures[number]
        engine = self._engine
        # First the network, then what is decided about it: live, jobs feel the
        # failure before anybody can answer it.
        engine.backend.fail(failure)
        engine.catch_up()
        self._note(failure)
        kind: Any = events.EVENTS[failure.kind]
        parts = [failure.part]
        if failure.kind == "controller_killed":
            parts = []
        engine.emit(kind, *parts)
        engine.reservations.set_lost(self._servers, self._links)
        restored = failure.kind.endswith("restored")
        if failure.kind == "server_failed":
            self._server_failed()
        elif failure.kind == "link_failed":
            self._link_failed()
        elif restored:
            self.retry()
        self.report_stopped()
        if restored:
            engine.ask(act.Restored())

    def _note(self, failure: Failure) -> None:
        """Keeps what is lost now. A restart loses nothing for long."""
        of_server = failure.kind.startswith("server")
        lost = self._servers if of_server else self._links
        if failure.kind in ("link_restored", "server_restored"):
            lost.discard(failure.part)
        elif failure.kind in ("link_failed", "server_failed"):
            lost.add(failure.part)
        self.lasting = bool(self._links or self._servers)

    def started(self, job: JobState) -> None:
        """Sees to a job that starts, or moves, while something is lost;
        :meth:`report_stopped` is for the caller.
        """
        if job.phase == "running" and self._lacks_server(job):
            self._stop(job, self._server_text(job))
        elif job.phase == "running" and self._lacks_link(job):
            self._reroute(job)

    def retry(self) -> None:
        """Reconnects jobs that wait for a link: over their own paths, or below
        another root.

        Put off in the middle of a policy's list of actions, where what one of
        them frees may be for the next.
        """
        self.put_off = self._engine.deciding
        if self.put_off:
            return
        # In the order in which they were cut: the first has the first claim
        # on another root. A copy, since jobs that get on leave it.
        for job_id in list(self._cut):
            job = self._engine.jobs.get(job_id)
            if job is None or job.phase != "running":
                del self._cut[job_id]
            elif not self._lacks_link(job) or not isinstance(
                self._moved(job), str
            ):
                self._reconnect(job)

    def left(self, job_id: str) -> None:
        """A job that is cut leaves its nodes: wherever it comes next has all
        its links.
        """
        if job_id in self._cut:
            del self._cut[job_id]
            self._engine.backend.reconnect(job_id)

    def give_up(self) -> bool:
        """Ends the jobs that run, if all of them wait for links that nothing
        brings back.

        The caller knows that nothing else is to come. False if some job still
        gets on.
        """
        engine = self._engine
        # A job that still moves may free the room that the others wait for.
        if not self._cut or not engine.running.keys() <= self._cut.keys():
            return False
        for job_id in list(engine.running):
            # The end of one before it may have given it another path.
            if job_id not in self._cut:
                continue
            job = engine.jobs[job_id]
            self._kill(job, f"cut off for good: {self._link_text(job)}")
        self._cut.clear()
        self.report_stopped()
        return True

    def report_stopped(self) -> None:
        """Notifies the policy, once all are stopped: of the ends, then of the
        jobs that wait again.
        """
        engine = self._engine
        # Stable: those that ended, then those that wait, each in the order
        # in which they were stopped.
        gone = sorted(self.unreported, key=itemgetter(1))
        self.unreported.clear()
        anew = [job_id for job_id, waits in gone if waits]
        for job_id, _ in gone:
            more = bool(anew) or job_id != gone[-1][0]
            engine.ask(act.Ended(job_id, "killed", more_at_this_time=more))
        for job_id in anew:
            # Unless it was started with one before it.
            if job_id in engine.waiting:
                engine.ask(act.Arrived(job_id))

    # -- inside -----------------------------------------------------------------------------

    def _lacks_server(self, job: JobState) -> bool:
        """True if a job has VMs on a server that is lost."""
        return any(
            server in self._servers for server, _ in job.placed().vms_on
        )

    def _lacks_link(self, job: JobState) -> bool:
        """True if the links that are lost keep some of a job's VMs from others."""
        return (
            bool(self._links)
            and job.request.demand.network
            # Without bandwidth it sends nothing.
            and job.request.bandwidth_bps > 0
            and bool(self._lost_links(job))
        )

    def _lost_links(self, job: JobState) -> list[int]:
        return sorted(
            self._links & links_used(self._engine.datacentre, job.placed())
        )

    def _placed(self, *phases: Phase) -> list[JobState]:
        """Jobs in these phases, by arrival."""
        placed = [
            job for job in self._engine.jobs.values() if job.phase in phases
        ]
        return sorted(placed, key=lambda job: job.order)

    def _link_failed(self) -> None:
        # By arrival, each to the first root with room: moving several at
        # once might place more of them, but nobody could foretell who moves
        # (decision 01).
        for job in filter(
            self._lacks_link, self._placed("running", "reserved")
        ):
            # It may move below another root; if not, the link may be back
            # by its start.
            if job.phase == "reserved":
                self._moved(job)
            elif job.request.id not in self._cut:
                self._reroute(job)

    def _server_failed(self) -> None:
        for job in filter(self._lacks_server, self._placed("running")):
            self._stop(job, self._server_text(job))

    def _reroute(self, job: JobState) -> None:
        """Another root for a running job, or its policy's way."""
        refusal = self._moved(job)
        if not isinstance(refusal, str):
            return
        reason = f"{self._link_text(job)}; {refusal}"
        if self._on_failure != "wait":
            self._stop(job, reason)
            return
        job_id = job.request.id
        # It keeps its reservation, so that it needs no second admission
        # when its link is back.
        self._cut[job_id] = None
        self._engine.backend.cut(job_id)
        self._engine.emit(events.JobCut, job_id, reason)

    def _moved(self, job: JobState) -> Placement | str:
        """The job's placement below another root; the reason where there is
        none.
        """
        engine = self._engine
        job_id = job.request.id
        ledger = engine.reservations.ledger(job.tier)
        if job_id not in ledger.holdings():
            return "its reservation is over"
        # Slots and rate stay: only the tree below another root is looked
        # for.
        moved = reroot(ledger, job_id, engine.now_s, self._links)
        if isinstance(moved, str):
            return moved
        text = self._link_text(job)
        job.placement = moved
        if job.pending is not None:
            job.pending = replace(job.pending, placement=moved)
        else:
            engine.backend.reroot(job_id, moved)
            engine.catch_up()
        engine.emit(
            events.JobRerooted,
            job_id,
            reason=text,
            root=moved.root,
            links=engine.links(moved, job.rate_bps),
        )
        return moved

    def _reconnect(self, job: JobState) -> None:
        job_id = job.request.id
        del self._cut[job_id]
        self._engine.backend.reconnect(job_id)
        self._engine.emit(events.JobReconnected, job_id)

    def _stop(self, job: JobState, reason: str) -> None:
        """Ends a job, or lets it wait to start anew."""
        self._cut.pop(job.request.id, None)
        if self._on_failure == "requeue":
            self._engine.requeue(job, reason)
            self.unreported.append((job.request.id, True))
        else:
            self._kill(job, reason)

    def _kill(self, job: JobState, reason: str) -> None:
        self._engine.kill(job.request.id, f"{events.FAILED}: {reason}")
        self.unreported.append((job.request.id, False))

    def _link_text(self, job: JobState) -> str:
        name = self._engine.datacentre.link_name
        names = [name(up(link)) for link in self._lost_links(job)]
        noun = "link" if len(names) == 1 else "links"
        return f"lost {noun} {', '.join(names)}"

    def _server_text(self, job: JobState) -> str:
        names = self._engine.datacentre.names
        lost = []
        for server, _ in job.placed().vms_on:
            if server in self._servers:
                lost.append(names[server])
        return f"{', '.join(lost)} {'are' if len(lost) > 1 else 'is'} lost"
