"""Guard around a policy from outside the testbed: what it does wrong ends the run in one sentence.

A decision that reads the clock, draws random numbers, does input or output, takes too long, raises
an exception or answers what is no list of sound actions is a
:class:`~testbed.errors.RunFailed` that names policy, time, occasion and place. Nothing of that
decision is carried out; what was reserved before stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from traceback import walk_tb
from typing import Any, NoReturn, cast

import numpy as np

from jobs.request import JobRequest
from testbed.embedding.base import Embedder
from testbed.embedding.installed_embedder import CheckedEmbedder, EmbedderFailed
from testbed.engine.action_checks import Nonsense, checked, kind_of
from testbed.engine.decision_limit import TimeLimit
from testbed.engine.impurity import OURS, Purity, Stopped, place
from testbed.engine.plug_in_view import PlugInView
from testbed.engine.refusals import refusal
from testbed.errors import RunFailed
from testbed.schedulers import actions as act
from testbed.schedulers.policy import Charging, Policy, View

LIMIT_S = 10.0
"""Wall time for one decision. A live run's jobs end meanwhile, unseen: no policy has so long."""

IDLE_WAKES = 1_000_000
"""Times in a row that a policy may be woken and do nothing: a run that never ends."""

ANSWER_HINT = "decide(view, event) returns a list of actions, which may be empty"
CHANGE_HINT = "a policy answers with actions; the engine reserves"


def of_the_testbed(policy: Policy) -> bool:
    """True for a policy of this program's own."""
    return type(policy).__module__.partition(".")[0] in OURS


def guarded(policy: Policy, label: str, limit_s: float = LIMIT_S, module: str = "") -> Policy:
    """The policy, guarded, as ``label`` in messages; its code is of ``module``, or its class's."""
    kind = _GuardedCharging if isinstance(policy, Charging) else _Guarded
    return kind(policy, label, limit_s, module)


def watched(found: Embedder, limit_s: float = LIMIT_S) -> Embedder:
    """The embedder; one of a package is watched and limited in time as a policy is, from now on."""
    if isinstance(found, CheckedEmbedder):
        found.ask = partial(_Calls(found.module, limit_s).answer, str)
    return found


class _Calls:
    """Calls of one plug-in, watched and limited in time; those of several plug-ins may nest."""

    def __init__(self, module: str, limit_s: float) -> None:
        self.purity = Purity(module, _Calls._ask.__code__)
        self._limit = TimeLimit(limit_s, self.purity.culprit, self.purity.expired)

    def answer(self, sentence: Callable[[str], str], call: Callable[..., Any], *given: Any) -> Any:
        """The answer to a call. Raises RunFailed."""
        answer: Any = None
        raised: BaseException | None = None
        try:
            try:
                answer = self._ask(call, given)
            finally:
                self.purity.stop()
                self._limit.stop()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - sys.exit() and what a plug-in thinks of
            raised = error
            self.purity.stop()
            self._limit.stop()
        fault = self._fault(raised)
        if isinstance(raised, EmbedderFailed) or (fault is None and raised is not None):
            raise raised
        if fault is not None:
            cause = None if isinstance(raised, Stopped) else raised
            raise RunFailed(sentence(fault[0]), fault[1]) from cause
        return answer

    def _ask(self, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        self._limit.start()
        self.purity.start()
        return call(*given)  # what is below this function's frame is the plug-in's

    def _fault(self, raised: BaseException | None) -> tuple[str, str | None] | None:
        """The fault of a decision and its hint; None for a sound one."""
        if self.purity.fault is None and self._limit.late is not None:
            return f"has not answered within {self._limit.limit_s:g} s ({self._limit.late})", None
        if self.purity.fault or raised is None or isinstance(raised, Stopped):  # by an outer watch
            return self.purity.fault
        return f"raised {_in_words(raised)}{self._last_place(raised)}", None

    def _last_place(self, raised: BaseException) -> str:
        """The plug-in's last line before an exception: `` (mine.py:14)``."""
        frames = [*walk_tb(raised.__traceback__)]
        own = [each for each in frames if self.purity.is_own(each[0])] or frames[-1:]
        return f" ({place(*own[-1])})" if own else ""


class _Guarded:
    """A guarded policy: decides as the policy in it does, or ends the run."""

    def __init__(self, policy: Policy, label: str, limit_s: float, module: str) -> None:
        self.name = label
        self._policy = policy
        self._calls = _Calls(module or type(policy).__module__, limit_s)
        self._view: PlugInView | None = None
        self._of: View | None = None
        self._shown: dict[str, int] = {}
        self._idle = 0

    def decide(self, view: View, event: act.PolicyEvent) -> list[act.Action]:
        """Asks the policy. Raises RunFailed where it does what no policy may."""

        def sentence(why: str) -> str:
            return refusal(self.name, view.now_s, event, why)

        job_id = getattr(event, "job_id", "")
        if type(event) is act.Arrived:
            self._shown.setdefault(job_id, _digest(view, job_id))
        answer = self._calls.answer(sentence, self._policy.decide, self._seen(view), event)
        try:
            actions = checked(answer, view.now_s)
            self._intact(view, {job_id, *(getattr(each, "job_id", "") for each in actions)})
            self._alive(event, actions)
        except Nonsense as fault:
            raise RunFailed(sentence(str(fault)), ANSWER_HINT) from None
        if type(event) is act.Ended:
            self._shown.pop(job_id, None)
        return actions

    # -- before and after ---------------------------------------------------------------------

    def _seen(self, view: View) -> View:
        """The view to decide from."""
        if self._view is None or self._of is not view:
            self._of, self._view = view, PlugInView(view, self._refuse)
        self._view.renew(view.now_s)
        return cast("View", self._view)

    def _refuse(self, why: str) -> NoReturn:
        self._calls.purity.fault = self._calls.purity.fault or (why, CHANGE_HINT)
        raise Stopped

    def _intact(self, view: View, job_ids: set[str]) -> None:
        """Raises Nonsense where a job is not what it was when it arrived."""
        for job_id in job_ids & self._shown.keys():
            with suppress(KeyError):  # it has left
                if _digest(view, job_id) != self._shown[job_id]:
                    raise Nonsense(f"has changed job {job_id}, which it was shown")

    def _alive(self, event: act.PolicyEvent, actions: list[act.Action]) -> None:
        """Raises Nonsense where a policy has itself woken for ever."""
        if isinstance(event, act.Woken) and all(type(each) in _IDLE for each in actions):
            self._idle += 1
            if self._idle > IDLE_WAKES:
                raise Nonsense(f"was woken {IDLE_WAKES:,} times in a row and did nothing")
        else:
            self._idle = 0


class _GuardedCharging(_Guarded):
    """The same of a policy that charges."""

    def price(self, job: JobRequest, ran_s: float) -> float:
        """The policy's price. Raises RunFailed as :meth:`decide` does."""

        def sentence(why: str) -> str:
            return f"policy {self.name}, on the price of job {job.id}: {why}"

        price = self._calls.answer(sentence, cast("Charging", self._policy).price, job, ran_s)
        known = isinstance(price, int | float | np.integer | np.floating)
        if not known or not math.isfinite(price):
            what = str(price) if known else kind_of(price)
            raise RunFailed(sentence(f"answered {what} instead of dollars"))
        return float(price)


_IDLE = (act.Wait, act.Wake)


def _digest(view: View, job_id: str) -> int:
    """A digest of a job as it is shown; 0 where one of its values has none."""
    try:
        return hash(view.job(job_id))
    except TypeError:
        return 0


LONGEST_TEXT = 300


def _in_words(raised: BaseException) -> str:
    """``ZeroDivisionError: division by zero``: one line, whatever the exception's text is."""
    kind = type(raised).__name__
    try:
        text = " ".join(str(raised).split())[:LONGEST_TEXT]
    except Exception:  # noqa: BLE001 - an exception of the plug-in's own class
        return kind
    text = text.encode("utf-8", "replace").decode("utf-8")
    return f"{kind}: {text}" if text else kind
