"""Guard around a policy from outside: a fault of it ends the run in a sentence.

A decision that takes too long, raises an exception or returns no list of sound
actions raises :class:`~testbed.errors.RunFailed` with policy, time, occasion
and place. Nothing of that decision is carried out; earlier reservations stay.
The policy's source was checked when it was loaded
(:mod:`testbed.plugin_source`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from traceback import walk_tb
from typing import Any, NoReturn, cast

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.installed_embedder import (
    CheckedEmbedder,
    EmbedderFailed,
)
from testbed.embedding.placement import Embedder
from testbed.engine.refusals import refused_answer
from testbed.errors import RunFailed
from testbed.plugin_guard.action_checks import (
    Nonsense,
    checked_actions,
    kind_of,
    shown,
)
from testbed.plugin_guard.decision_limit import TimeOver, within
from testbed.plugin_guard.plug_in_view import PlugInView
from testbed.schedulers import actions as act
from testbed.schedulers.policy import Charging, Policy, View

OURS = frozenset({"testbed", "jobs", "topologies", "controller"})
"""Top-level packages of this program."""

LIMIT_S = 10.0
"""Wall time for one decision, in s. Meanwhile a live run does not see its jobs
end.
"""

IDLE_WAKES = 1_000_000
"""Times in a row that a policy may be woken and do nothing. Without a limit such a
run would never end.
"""

CHANGE_HINT = "a policy answers with actions; the engine reserves"
LONGEST_TEXT = 300

_IDLE_ACTIONS = (act.Wait, act.Wake)


def of_the_testbed(policy: Policy) -> bool:
    """True for a policy of this program's own."""
    return type(policy).__module__.partition(".")[0] in OURS


def guarded(policy: Policy, label: str, limit_s: float = LIMIT_S) -> Policy:
    """The policy, guarded, as ``label`` in messages."""
    if isinstance(policy, Charging):
        return _GuardedCharging(policy, label, limit_s)
    return _Guarded(policy, label, limit_s)


def limited(embedder: Embedder, limit_s: float = LIMIT_S) -> Embedder:
    """The embedder, which has a time limit unless it is the testbed's own."""
    if isinstance(embedder, CheckedEmbedder):
        embedder.ask = partial(_embed_within, limit_s)
    return embedder


def _embed_within(
    limit_s: float, embed: Callable[..., Any], *arguments: Any
) -> Any:
    try:
        return within(limit_s, embed, *arguments)
    except TimeOver as late:
        # It may be the asking policy whose time is over.
        if late.call is not embed:
            raise
        raise RunFailed(str(late)) from None


class _Guarded:
    """A policy that decides as the one in it does, or ends the run."""

    def __init__(self, policy: Policy, label: str, limit_s: float) -> None:
        self.name = label
        self._policy = policy
        self._limit_s = limit_s
        self._plug_in_view: PlugInView | None = None
        self._engine_view: View | None = None
        # Digests of the jobs that the policy was shown, until they have ended.
        self._digests: dict[str, int] = {}
        self._idle_wakes = 0
        self._forbidden_change: str | None = None

    def decide(
        self, view: View, event: act.PolicyEvent
    ) -> list[act.Action]:
        """The policy's actions. Raises RunFailed for a fault of the policy."""
        sentence = partial(refused_answer, self.name, view.now_s, event)
        job_id = getattr(event, "job_id", "")
        if type(event) is act.Arrived:
            self._digests.setdefault(job_id, _digest(view, job_id))
        answer = self._answer(
            sentence, self._policy.decide, self._shown_view(view), event
        )
        try:
            actions = checked_actions(answer, view.now_s)
            job_ids = {getattr(action, "job_id", "") for action in actions}
            self._check_unchanged(view, {job_id, *job_ids})
            self._check_progress(event, actions)
        except Nonsense as fault:
            raise RunFailed(sentence(str(fault)), fault.hint) from None
        if type(event) is act.Ended:
            self._digests.pop(job_id, None)
        return actions

    def _answer(
        self,
        sentence: Callable[[str], str],
        call: Callable[..., Any],
        *arguments: Any,
    ) -> Any:
        """The result of a call of the policy. Raises RunFailed."""
        self._forbidden_change = None
        answer: Any = None
        fault: str | None = None
        cause: BaseException | None = None
        try:
            answer = within(self._limit_s, call, *arguments)
        # Neither is the policy's fault.
        except (KeyboardInterrupt, EmbedderFailed):
            raise
        except TimeOver as late:
            fault = str(late)
        except BaseException as error:  # noqa: BLE001 - sys.exit() and what a plug-in thinks of
            fault = f"raised {_in_words(error)}{_last_place(error)}"
            cause = error
        # The plug-in may have caught the exception of a forbidden change.
        if self._forbidden_change is not None:
            raise RunFailed(sentence(self._forbidden_change), CHANGE_HINT)
        if fault is not None:
            raise RunFailed(sentence(fault)) from cause
        return answer

    # -- before and after ------------------------------------------------------

    def _shown_view(self, view: View) -> View:
        """The plug-in's view at the present decision."""
        if self._plug_in_view is None or self._engine_view is not view:
            self._engine_view = view
            self._plug_in_view = PlugInView(view, self._refuse_change)
        self._plug_in_view.renew(view.now_s)
        return cast("View", self._plug_in_view)

    def _refuse_change(self, change: str) -> NoReturn:
        self._forbidden_change = self._forbidden_change or change
        raise PermissionError(change)

    def _check_unchanged(self, view: View, job_ids: set[str]) -> None:
        """Raises Nonsense where a job is not what it was when it arrived."""
        for job_id in job_ids & self._digests.keys():
            with suppress(KeyError):  # it has left
                if _digest(view, job_id) != self._digests[job_id]:
                    raise Nonsense(
                        f"has changed job {job_id}, which it was shown"
                    )

    def _check_progress(
        self, event: act.PolicyEvent, actions: list[act.Action]
    ) -> None:
        """Raises Nonsense where a policy is woken again and again and does
        nothing.
        """
        # A policy may well wake itself a million times and start something
        # now and then; only idle wakes in a row have no end.
        idle = all(type(action) in _IDLE_ACTIONS for action in actions)
        if not isinstance(event, act.Woken) or not idle:
            self._idle_wakes = 0
            return
        self._idle_wakes += 1
        if self._idle_wakes > IDLE_WAKES:
            raise Nonsense(
                f"was woken {IDLE_WAKES:,} times in a row and did nothing"
            )


class _GuardedCharging(_Guarded):
    """A guarded policy that charges for jobs."""

    def price(self, job: JobRequest, ran_s: float) -> float:
        """The policy's price. Raises RunFailed as :meth:`decide` does."""

        def sentence(fault: str) -> str:
            return (
                f"policy {self.name}, on the price of job {job.id}: {fault}"
            )

        charging = cast("Charging", self._policy)
        price = self._answer(sentence, charging.price, job, ran_s)
        if not isinstance(price, int | float | np.integer | np.floating):
            raise RunFailed(
                sentence(f"answered {kind_of(price)} instead of dollars")
            )
        try:
            # An int of hundreds of digits has no float.
            dollars = float(price)
        except OverflowError:
            dollars = math.inf
        if not math.isfinite(dollars):
            raise RunFailed(
                sentence(f"answered {shown(price)} instead of dollars")
            )
        return dollars


def _digest(view: View, job_id: str) -> int:
    """A digest of a job as it is shown; 0 where one of its values has none."""
    try:
        return hash(view.job(job_id))
    except TypeError:
        return 0


def _last_place(error: BaseException) -> str:
    """`` (mine.py:14)``: the plug-in's last line before an exception."""
    place = ""
    folder = None
    for frame, line in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] in OURS:
            continue
        file = PurePath(frame.f_code.co_filename)
        folder = folder or file.parent
        # Frames further in may be of libraries, in other folders.
        if file.parent == folder:
            place = f" ({file.name}:{line})"
    return place


def _in_words(error: BaseException) -> str:
    """``ZeroDivisionError: division by zero``, in one line."""
    kind = type(error).__name__
    try:
        text = " ".join(str(error).split())[:LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - an exception of the plug-in's own class
        return kind
    text = text.encode("utf-8", "replace").decode("utf-8")
    if not text:
        return kind
    return f"{kind}: {text}"
