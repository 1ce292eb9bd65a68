"""Refused actions of policies, in sentences: policy, time, occasion, action,
reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from testbed.errors import RunFailed
from testbed.schedulers import actions as act
from testbed.units import human_bandwidth


class ActionRefused(RunFailed):
    """An action that cannot be carried out; the message is the reason alone.

    The engine adds the rest (:func:`refused_answer`). Whoever raises it has changed
    nothing by the action.
    """


@contextmanager
def refusing() -> Iterator[None]:
    """Makes what a ledger says against an action, having changed nothing, a
    refusal of it.
    """
    try:
        yield
    except (ValueError, LookupError, OverflowError) as error:
        raise ActionRefused(str(error)) from error


def refused_answer(
    policy: str, now_s: float, event: act.PolicyEvent, why: str
) -> str:
    """``policy mine, at 12.5 s, on the arrival of job third: WHY``."""
    return f"policy {policy}, at {seconds(now_s)}, {occasion(event)}: {why}"


def refused_action(number: int, action: act.Action, why: str) -> str:
    """``action 2, Start(job third at 100 Mbit/s), is refused: WHY``."""
    return f"action {number}, {in_words(action)}, is refused: {why}"


def seconds(at_s: float) -> str:
    """A time on the run's clock, without the last digits of sums of floats."""
    return f"{at_s:.10g} s"


def occasion(event: act.PolicyEvent) -> str:
    """The occasion of a decision: ``on the arrival of job third``."""
    match event:
        case act.Arrived(job_id):
            return f"on the arrival of job {job_id}"
        case act.Ended(job_id):
            return f"on the end of job {job_id}"
        case act.Preempted(job_id):
            return f"on the preemption of job {job_id}"
        case act.Outlasted(job_id):
            return f"at the end of job {job_id}'s reservation"
        case act.Woken():
            return "woken as it asked"
        case act.Restored():
            return "when a link or a server is back"
        case _ as never:
            assert_never(never)


def in_words(action: act.Action) -> str:
    """An action as people read it: ``Start(job third at 100 Mbit/s)``."""
    kind = type(action).__name__
    if isinstance(action, act.Wake):
        return f"{kind}(at {seconds(action.at_s)})"
    words = f"job {action.job_id}"
    match action:
        case act.Start() | act.Rescale():
            words += f" at {human_bandwidth(action.rate_bps)}"
        case act.Reserve():
            times = (
                f"from {seconds(action.start_s)} to {seconds(action.end_s)}"
            )
            words += f" at {human_bandwidth(action.rate_bps)}, {times}"
        case act.Shorten():
            words += f" to {seconds(action.until_s)}"
        case act.SwitchTier():
            words += f" to the {action.tier}"
        case _:
            pass
    return f"{kind}({words})"
