"""One event loop for every policy and every backend.

The engine owns the order of things (at equal times: ends, then starts, then
arrivals, then by id), the ledgers, and the event stream. It asks the policy
what to do, checks every placement with the independent capacity check, books
it, and only then asks the backend.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jobs.request import JobRequest
from testbed import events
from testbed.embedding.installed_embedder import EmbedderFailed
from testbed.embedding.placement import Placement, Residual
from testbed.engine.backend import Backend, Completion, StartFailed
from testbed.engine.engine_state import EngineState, Sink
from testbed.engine.job_states import (
    Arrivals,
    EventPriority,
    JobState,
    Phase,
    visible_of,
)
from testbed.engine.outages import Outages
from testbed.engine.refusals import (
    ActionRefused,
    refused_action,
    refused_answer,
    refusing,
)
from testbed.errors import RunFailed
from testbed.failures import Failure, OnFailure
from testbed.reservation.ledger import Ledger
from testbed.schedulers import actions as act
from testbed.schedulers.policy import Charging, Policy
from topologies.datacentre import DataCentre


class EngineView:
    """See :class:`testbed.schedulers.policy.View`."""

    def __init__(self, state: EngineState, *, listening: bool) -> None:
        self._state = state
        self._jobs = state.jobs
        self.datacentre: DataCentre = state.datacentre
        self.listening = listening
        # Kept by the engine: nothing is read as often.
        self.now_s = state.now_s

    def job(self, job_id: str) -> JobRequest:
        return self._jobs[job_id].visible

    def waiting(self) -> tuple[str, ...]:
        return self._state.waiting_by_arrival()

    def running(self) -> tuple[str, ...]:
        return tuple(self._state.running)

    def placement(self, job_id: str) -> Placement | None:
        return self._jobs[job_id].placement

    def left(self, job_id: str) -> Placement | None:
        return self._jobs[job_id].last_placement

    def tier(self, job_id: str) -> act.Tier:
        return self._jobs[job_id].tier

    def order(self, job_id: str) -> int:
        return self._jobs[job_id].order

    @property
    def largest_bps(self) -> int:
        return self._state.largest_bps

    def residual(
        self,
        start_s: float,
        end_s: float | None,
        tier: act.Tier = "foreground",
    ) -> Residual:
        return self._state.reservations.residual(start_s, end_s, tier)

    @property
    def ledger(self) -> Ledger:
        return self._state.ledger


class Engine(EngineState):
    """Runs one policy over one set of jobs on one backend.

    ``jobs``: see :class:`~testbed.engine.job_states.Arrivals`. A job that has
    ended is forgotten after the step that it ended in, so that a million of
    them need no more memory than those that are there at a time. ``sink`` None:
    nobody listens, and no event is made.
    """

    def __init__(
        self,
        datacentre: DataCentre,
        jobs: Iterable[JobRequest],
        policy: Policy,
        backend: Backend,
        sink: Sink | None,
        after_step: Callable[[Engine], None] | None = None,
        failures: tuple[Failure, ...] = (),
        on_failure: OnFailure = "kill",
    ) -> None:
        super().__init__(datacentre, backend, sink)
        self.policy = policy
        self._charging = policy if isinstance(policy, Charging) else None
        self._after_step = after_step
        self._timeline: list[tuple[float, int, str, int]] = []
        self._coming = Arrivals(jobs)
        self._left: list[str] = []
        self._unstarted: list[str] = []
        self._arrived = 0
        self._outages = Outages(self, failures, on_failure)
        self._unreported = self._outages.unreported
        for number, failure in enumerate(failures):
            self._at(failure.at_s, EventPriority.FAILURE, "", number)
        self._view = EngineView(self, listening=sink is not None)
        self._does: dict[type, Callable[[Any], None]] = {
            act.Start: self._start,
            act.Reserve: self._reserve,
            act.Reject: self._reject,
            act.Kill: self._kill,
            act.Rescale: self._rescale,
            act.Preempt: self._preempt,
            act.Shorten: self._shorten,
            act.Resume: self._resume,
            act.Migrate: self._migrate,
            act.SwitchTier: self._switch_tier,
            act.Wait: self._wait,
            act.Wake: self._wake,
        }

    def run(self) -> None:
        """Play every job to its end. Whatever interrupts leaves the running
        ones ``unfinished``.
        """
        try:
            # Local names: the loop runs a million times.
            step = self._step
            after_step = self._after_step
            jobs = self.jobs
            left = self._left
            while step():
                if after_step is not None:
                    after_step(self)
                # Not before: events and the policy's view may name a job in
                # the step in which it leaves.
                while left:
                    del jobs[left.pop()]
        # Also of KeyboardInterrupt: an interrupted run has an end for every
        # job, and can be audited.
        except BaseException as error:
            why = str(error) or type(error).__name__
            if isinstance(error, KeyboardInterrupt):
                why = "interrupted"
            self._abandon(why)
            raise
        for job_id in list(self.waiting):
            self._end(
                self.jobs[job_id],
                "unfinished",
                "the policy never started it",
            )
        self.emit(events.RunEnded, "completed", "")

    # -- the loop ---------------------------------------------------------------------------

    def _step(self) -> bool:
        """Advances to the next event; False where there is none."""
        arrival = self._coming.next
        timeline = self._timeline
        until_s = None
        planned_is_next = False
        # The earlier of what is planned and what arrives, but no later than
        # the next completion, which the backend alone knows.
        if timeline and not self._coming.before(*timeline[0][:3]):
            planned_is_next = True
            until_s = timeline[0][0]
        elif arrival is not None:
            until_s = arrival.submit_s
        elif not self.running:
            return False
        elif self._outages.lasting and self._outages.give_up():
            return True
        # A completion at the same instant comes first: ends before starts
        # and arrivals.
        completions = self.backend.wait(until_s)
        if completions:
            self._complete_all(completions)
        elif until_s is None:
            stuck = ", ".join(self.running)
            raise RunFailed(
                f"the backend has nothing left to wait for, yet these jobs run: {stuck}"
            )
        else:
            at_s = self.backend.now_s()
            # A live backend may come back a moment late.
            self._advance(at_s if at_s > until_s else until_s)
            if planned_is_next:
                _, priority, key, epoch = heapq.heappop(timeline)
                self._due(EventPriority(priority), key, epoch, until_s)
            elif arrival is not None:
                self._coming.step()
                self._arrive(arrival)
        # Not before: the policy is in the middle of its list of actions.
        while self._unreported:
            self._outages.report_stopped()
        while self._unstarted:
            job_id = self._unstarted.pop(0)
            more = bool(self._unstarted)
            self.ask(act.Ended(job_id, "killed", more_at_this_time=more))
        # Entries of jobs that have left must not keep the run from ending with
        # its last job.
        while timeline and self._stale(*timeline[0]):
            heapq.heappop(timeline)
        return True

    def _stale(self, _: float, priority: int, key: str, epoch: int) -> bool:
        """True if an entry of the timeline belongs to an earlier plan or a job
        that has left.
        """
        if priority in (EventPriority.WAKE, EventPriority.FAILURE):
            # It would meet no job, and only make the run longer.
            all_left = len(self.jobs) == len(self._left)
            return all_left and self._coming.next is None
        job = self.jobs.get(key)
        return job is None or job.epoch != epoch

    def catch_up(self) -> None:
        """Sets the time to the backend's, whose clock runs on while it carries
        out requests.
        """
        now_s = self.backend.now_s()
        if now_s > self.now_s:
            self._advance(now_s)

    def _advance(self, at_s: float) -> None:
        if at_s > self.now_s:
            reservations = self.reservations
            self.now_s = at_s
            self._view.now_s = at_s
            reservations.now_s = at_s
            if reservations.ledgers:
                reservations.forget_past()

    def _due(
        self, priority: EventPriority, key: str, epoch: int, at_s: float
    ) -> None:
        if priority is EventPriority.WAKE:
            self.ask(act.Woken(at_s))
            return
        if priority is EventPriority.FAILURE:
            self._outages.due(epoch)
            return
        job = self.jobs.get(key)
        if job is None or job.epoch != epoch:
            return
        if priority is EventPriority.START and job.pending is not None:
            job.pending = None
            self._launch(job, job.placed())
        elif priority is EventPriority.END and job.yields_to is not None:
            self._preempt(act.Preempt(key, job.yields_to))
            self.ask(act.Preempted(key))
        elif priority is EventPriority.END:
            self._outlast(job)

    def _outlast(self, job: JobState) -> None:
        """Kills a job whose reservation is over, unless the policy moves it."""
        job_id = job.request.id
        epoch = job.epoch
        if job.asks_at_end:
            self.ask(act.Outlasted(job_id))
        if job.epoch == epoch:
            self.kill(job_id, events.OUTLASTED)
            self.ask(act.Ended(job_id, "killed"))

    def _at(
        self, at_s: float, priority: EventPriority, key: str, epoch: int = 0
    ) -> None:
        heapq.heappush(self._timeline, (at_s, priority.value, key, epoch))

    def _wake(self, action: act.Wake) -> None:
        # A time that has passed means at once; the run's clock never goes
        # back.
        self._at(max(action.at_s, self.now_s), EventPriority.WAKE, "")

    def ask(self, event: act.PolicyEvent) -> None:
        try:
            actions = self.policy.decide(self._view, event)
        except EmbedderFailed as error:
            sentence = refused_answer(
                self.policy.name, self.now_s, event, error.message
            )
            raise EmbedderFailed(sentence, error.hint) from error
        does = self._does
        self.deciding = True
        for number, action in enumerate(actions, 1):
            # Decided together with a start that the backend could not make.
            if (
                self._unstarted
                and getattr(action, "job_id", None) in self._unstarted
            ):
                continue
            try:
                does[type(action)](action)
            except ActionRefused as error:
                why = refused_action(number, action, error.message)
                sentence = refused_answer(
                    self.policy.name, self.now_s, event, why
                )
                raise RunFailed(sentence, error.hint) from error
        self.deciding = False
        if self._outages.put_off:
            self._outages.retry()

    # -- events of jobs ---------------------------------------------------------------

    def _arrive(self, request: JobRequest) -> None:
        if request.id in self.jobs:
            raise ValueError(
                f"job {request.id} is submitted while another of that name is here"
            )
        self._arrived += 1
        # A live run is late, and a job that follows another one comes when
        # that has left.
        if request.submit_s != self.now_s:
            request = replace(request, submit_s=self.now_s)
        # Its true running time is for the backend alone.
        open_book = (
            request.true_duration_s is None
            and request.demand.cpu_estimate is None
        )
        visible = request if open_book else visible_of(request)
        self.jobs[request.id] = JobState(request, visible, self._arrived)
        self.waiting[request.id] = None
        if request.bandwidth_bps > self.largest_bps:  # noqa: PLR1730 - the call costs
            self.largest_bps = request.bandwidth_bps
        if self._sink is not None:
            self._sink(
                events.JobSubmitted(
                    self.now_s, events.JobRecord(request.to_json)
                )
            )
        self.ask(act.Arrived(request.id))

    def _complete_all(self, completions: list[Completion]) -> None:
        """Records all of them before the policy is notified of the first.

        The backend is done with every one: what a policy decides about the
        first must not concern the second, though that ended a moment later.
        """
        gone: list[act.Ended] = []
        for done in completions:
            job = self.jobs.get(done.job_id)
            # Live, a job may end while it is being killed or moved.
            if job is None or job.phase not in ("running", "preempted"):
                continue
            self._advance(done.at_s)
            detail = done.detail
            if self._charging is not None:
                price = self._price(self._charging, done)
                detail = {**(detail or {}), **price}
            self._end(
                job,
                done.outcome,
                done.reason,
                measured_s=done.measured_s,
                detail=detail,
            )
            gone.append(act.Ended(done.job_id, done.outcome))
        for ended in gone[:-1]:
            self.ask(ended._replace(more_at_this_time=True))
        if gone:
            self.ask(gone[-1])

    def _price(
        self, policy: Charging, done: Completion
    ) -> dict[str, float]:
        """The price of a job; nothing where the job was late."""
        request = self.jobs[done.job_id].request
        due_s = request.deadline_at_s
        # Rounding of a sum of floats decides no deadline.
        late = due_s is not None and done.at_s > due_s + 1e-9 * max(
            1.0, abs(due_s)
        )
        if done.outcome != "finished" or late:
            return {}
        ran_s = done.measured_s or request.duration_s
        return {"price": policy.price(request, ran_s)}

    def kill(self, job_id: str, reason: str) -> None:
        job = self.jobs[job_id]
        # Of others the backend has never heard.
        if job.phase in ("running", "preempted"):
            self.backend.kill(job_id, reason)
        self._end(job, "killed", reason)

    def _end(
        self,
        job: JobState,
        outcome: str,
        reason: str,
        *,
        measured_s: float | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        job_id = job.request.id
        if job.placement is not None:
            self.reservations.release(job_id, job.tier, self.now_s)
        if job.phase == "running":
            self.running.pop(job_id, None)
        else:
            self.waiting.pop(job_id, None)
        job.phase = "ended"
        job.placement = None
        job.pending = None
        # The timeline's entries for it are void: they are skipped when
        # their time comes.
        job.epoch += 1
        self._left.append(job_id)
        if self._sink is not None:
            self._sink(
                events.JobEnded(
                    self.now_s,
                    job_id,
                    outcome=outcome,
                    reason=reason,
                    measured_s=measured_s,
                    detail=detail or {},
                )
            )
        # What it held may be the room that a job needs which is cut off.
        if self._outages.lasting and outcome != "unfinished":
            self._outages.retry()
        if self._coming.followers:
            self._coming.after(job_id, self.now_s)

    def _abandon(self, reason: str) -> None:
        # The backend's time may be later than the last decision; one that is
        # gone has none.
        with suppress(RunFailed, OSError):
            self._advance(self.backend.now_s())
        # Reservations are released too: the audit finds all capacity back.
        for job in self.jobs.values():
            if job.phase != "ended":
                self._end(job, "unfinished", f"the run stopped: {reason}")

    # -- actions of policies ---------------------------------------------------------------

    def _kill(self, action: act.Kill) -> None:
        self._require(
            action.job_id, "waiting", "reserved", "running", "preempted"
        )
        self.kill(action.job_id, action.reason)

    def _reject(self, action: act.Reject) -> None:
        job = self._require(action.job_id, "waiting")
        self._end(job, "rejected", action.reason)

    def _start(self, action: act.Start) -> None:
        # As _require does, without a call: most actions are starts.
        job = self.jobs.get(action.job_id)
        if job is None or job.phase != "waiting":
            job = self._require(action.job_id, "waiting")
        job_id, placement, rate_bps, end_s, kill_at_end, tier, asks = action
        job.tier = tier
        # As _hold does, without a call.
        self.reservations.reserve(
            job.request,
            placement,
            rate_bps,
            tier=tier,
            start_s=self.now_s,
            end_s=end_s,
        )
        job.placement = placement
        job.rate_bps = rate_bps
        job.asks_at_end = asks
        if self._sink is not None:
            self._emit_reserved(self._sink, job, self.now_s, end_s)
        # After the reservation, which may be refused: nothing of a refused
        # action may stay on the timeline.
        if end_s is not None and kill_at_end:
            self._at(end_s, EventPriority.END, job_id, job.epoch)
        del self.waiting[job_id]
        self._launch(job, placement)

    def _reserve(self, action: act.Reserve) -> None:
        job = self._require(action.job_id, "waiting")
        self._hold(
            job,
            action.placement,
            action.rate_bps,
            start_s=action.start_s,
            end_s=action.end_s,
        )
        if self._sink is not None:
            self._emit_reserved(
                self._sink, job, action.start_s, action.end_s
            )
        job.phase = "reserved"
        job.pending = action
        job.asks_at_end = action.ask_at_end
        self.waiting.pop(action.job_id, None)
        self._at(
            action.start_s, EventPriority.START, action.job_id, job.epoch
        )
        if action.kill_at_end:
            self._at(
                action.end_s, EventPriority.END, action.job_id, job.epoch
            )

    def _emit_reserved(
        self,
        sink: Sink,
        job: JobState,
        start_s: float,
        end_s: float | None,
    ) -> None:
        request = job.request
        rate_bps = job.rate_bps
        placement = job.placed()
        estimate_s = None
        if not request.is_best_effort(rate_bps):
            estimate_s = request.demand.estimate_s(request, rate_bps)
        sink(
            events.JobReserved(
                self.now_s,
                request.id,
                start_s=start_s,
                end_s=end_s,
                rate_bps=rate_bps,
                estimate_s=estimate_s,
                root=placement.root,
                vms_on=list(map(list, placement.vms_on)),
                links=self.links(placement, rate_bps),
                tier=job.tier,
            )
        )

    def _hold(
        self,
        job: JobState,
        placement: Placement,
        rate_bps: int,
        *,
        start_s: float | None = None,
        end_s: float | None,
    ) -> None:
        """Checks a placement independently, then reserves it in the job's tier,
        from now on where ``start_s`` is None.
        """
        self.reservations.reserve(
            job.request,
            placement,
            rate_bps,
            tier=job.tier,
            start_s=self.now_s if start_s is None else start_s,
            end_s=end_s,
        )
        job.placement = placement
        job.rate_bps = rate_bps

    def _launch(self, job: JobState, placement: Placement) -> None:
        request = job.request
        job_id = request.id
        # Before the backend is asked: while it starts the job, others may
        # look at it.
        self.running[job_id] = None
        job.phase = "running"
        try:
            self.backend.start(request, placement, job.rate_bps, job.tier)
        except StartFailed as error:
            # The attempt took time, on a live network.
            self._advance(self.backend.now_s())
            self._end(job, "killed", f"{events.NOT_STARTED}: {error}")
            self._unstarted.append(job_id)
            return
        self.catch_up()
        if self._sink is not None:
            self._sink(
                events.JobStarted(
                    self.now_s, job_id, job.rate_bps, job.tier
                )
            )
        if self._outages.lasting:
            self._outages.started(job)

    def _rescale(self, action: act.Rescale) -> None:
        job_id = action.job_id
        rate_bps = action.rate_bps
        job = self._require(job_id, "running")
        placement = job.placed()
        if job.tier == "background":
            raise ActionRefused(
                "it is in the background, which has no links"
            )
        with refusing():
            self.ledger.rerate(job_id, self.now_s, rate_bps)
        job.rate_bps = rate_bps
        self.backend.rescale(job_id, rate_bps)
        links = self.links(placement, rate_bps)
        self.emit(events.JobRescaled, job_id, rate_bps, links)
        # What a smaller rate leaves may be the room below another root that
        # a job needs which is cut off.
        if self._outages.lasting:
            self._outages.retry()

    def _shorten(self, action: act.Shorten) -> None:
        """Gives a running job's reservation an earlier end, where the job is
        preempted.
        """
        job_id = action.job_id
        until_s = action.until_s
        reason = action.reason
        job = self._require(job_id, "running")
        with refusing():
            self.reservations.ledger(job.tier).shorten(job_id, until_s)
        # Its end as planned so far is void.
        job.epoch += 1
        job.yields_to = reason
        self._at(until_s, EventPriority.END, job_id, job.epoch)
        self.emit(events.JobShortened, job_id, until_s, reason)

    def _preempt(self, action: act.Preempt) -> None:
        """Takes a job off its nodes with its progress. It waits at its place by
        arrival.
        """
        job_id = action.job_id
        job = self._require(job_id, "running")
        # Before it gives its nodes back: its links are brought back with
        # them.
        self._outages.left(job_id)
        self.backend.preempt(job_id)
        self._back_to_queue(job, "preempted")
        self.emit(events.JobPreempted, job_id, action.reason)
        if self._outages.lasting:
            self._outages.retry()

    def requeue(self, job: JobState, reason: str) -> None:
        """A running job gives back what it holds; it waits at its place by
        arrival, anew.
        """
        job_id = job.request.id
        self.backend.kill(job_id, reason)
        self._back_to_queue(job, "waiting")
        # It starts anew, wherever it fits.
        job.last_placement = None
        job.last_wait = None
        self.emit(events.JobRequeued, job_id, reason)
        self._outages.retry()

    def _back_to_queue(self, job: JobState, phase: Phase) -> None:
        """Lets a running job wait at its place by arrival."""
        job_id = job.request.id
        self._give_back(job)
        job.phase = phase
        self.running.pop(job_id, None)
        self.waiting[job_id] = None
        self.out_of_order = True

    def _resume(self, action: act.Resume) -> None:
        """Resumes a preempted job where it was."""
        job_id = action.job_id
        job = self._require(job_id, "preempted")
        tier = action.tier
        cost_s = action.cost_s
        self._run_again(job, job.placed(), action)
        self.backend.resume(job_id, cost_s, tier)
        self.emit(
            events.JobResumed,
            job_id,
            tier=tier,
            cost_s=cost_s,
            end_s=action.reserve_until_s,
        )

    def _migrate(self, action: act.Migrate) -> None:
        """Resumes a preempted or running job on (other) nodes."""
        job_id = action.job_id
        placement = action.placement
        job = self._require(job_id, "preempted", "running")
        if action.best_effort:
            self._check_gives_up(job, action.tier)
        # What it holds is given back first, so that old and new nodes may
        # overlap.
        if job.phase == "running":
            self._outages.left(job_id)
            self._give_back(job)
        if action.best_effort and job.rate_bps:
            job.rate_bps = 0
            self.emit(events.JobRescaled, job_id, 0, [])
        self._run_again(job, placement, action)
        self.backend.migrate(
            job_id,
            placement,
            action.cost_s,
            action.tier,
            best_effort=action.best_effort,
        )
        self.emit(
            events.JobMigrated,
            job_id,
            reason=action.reason,
            root=placement.root,
            vms_on=list(map(list, placement.vms_on)),
            links=self.links(placement, job.rate_bps),
            tier=action.tier,
            cost_s=action.cost_s,
            end_s=action.reserve_until_s,
        )
        # A job without a reservation takes nothing of a lost link, so that
        # the check of its placement does not refuse it.
        if self._outages.lasting:
            self._outages.started(job)
            self._outages.retry()

    @staticmethod
    def _check_gives_up(job: JobState, tier: act.Tier) -> None:
        """Refuses best effort to a job that does not run, or in the
        background.
        """
        if job.phase != "running":
            raise ActionRefused("only a running job gives up its bandwidth")
        if tier != "foreground":
            raise ActionRefused("best effort needs the foreground's links")

    def _switch_tier(self, action: act.SwitchTier) -> None:
        """Changes a job's priority on its nodes, which costs nothing."""
        job_id = action.job_id
        tier = action.tier
        job = self._require(job_id, "running")
        if tier == job.tier:
            raise ActionRefused(f"job {job_id} is in the {tier} already")
        # In one ledger it is given back, in the other it is taken.
        self._give_back(job)
        job.tier = tier
        self._hold(job, job.placed(), job.rate_bps, end_s=None)
        # It has not left these nodes.
        job.last_placement = None
        self.backend.switch_tier(job_id, tier)
        self.emit(events.JobTierSwitched, job_id, tier)

    def _wait(self, action: act.Wait) -> None:
        """Records why a job waits, where that is news."""
        job = self._require(action.job_id, "waiting", "preempted")
        if job.last_wait != action:
            job.last_wait = action
            if self._sink is not None:
                self._sink(
                    events.JobWaits(
                        self.now_s,
                        action.job_id,
                        action.reason,
                        list(action.behind),
                        action.until_s,
                    )
                )

    def _give_back(self, job: JobState) -> None:
        """Frees a running job's nodes and remembers them."""
        self.reservations.release(job.request.id, job.tier, self.now_s)
        job.last_placement = job.placement
        job.placement = None
        job.yields_to = None
        job.asks_at_end = False
        job.epoch += 1

    def _run_again(
        self,
        job: JobState,
        placement: Placement,
        action: act.Resume | act.Migrate,
    ) -> None:
        """Reserves a placement for a job that has run before, from now on."""
        job_id = action.job_id
        end_s = action.reserve_until_s
        job.tier = action.tier
        self._hold(job, placement, job.rate_bps, end_s=end_s)
        job.phase = "running"
        job.last_placement = None
        job.last_wait = None
        self.waiting.pop(job_id, None)
        self.running[job_id] = None
        if end_s is not None and action.kill_at_end:
            self._at(end_s, EventPriority.END, job_id, job.epoch)

    def _require(self, job_id: str, *phases: Phase) -> JobState:
        job = self.jobs.get(job_id)
        if job is None or job.phase not in phases:
            state = "not there (not yet, or no longer)"
            if job is not None:
                state = job.phase
            wanted = " or ".join(phases)
            raise ActionRefused(f"job {job_id} is {state}, not {wanted}")
        return job
