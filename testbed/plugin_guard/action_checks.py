"""Checks of a policy's list of actions, before the engine carries any out.

They cover the types and values of each action's fields; the engine checks the
actions against jobs and reservations. Numbers of NumPy become Python's.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np

from testbed.embedding.placement import Placement
from testbed.engine.refusals import refused_action
from testbed.schedulers import actions as act
from testbed.units import with_tolerance_s
from topologies.datacentre import MAX_LINK_BPS

MAX_ACTIONS = 1_000_000
"""Actions of one decision. More of them point to an endless loop."""
LONGEST_S = 1e12
"""The largest time, in seconds: 30,000 years. Sums of such times are exact to a
millisecond.
"""


DECIDE_HINT = (
    "decide(view, event) returns a list of actions, which may be empty"
)
WHOLE_RATE_HINT = (
    "rates are whole bit/s: write rate // 2 for rate / 2, or round(rate)"
)


class Nonsense(ValueError):
    """A fault of a policy's list of actions; ``hint`` says how to correct it."""

    def __init__(self, fault: str, hint: str | None = None) -> None:
        super().__init__(fault)
        self.hint = hint


def checked_actions(decision: object, now_s: float) -> list[act.Action]:
    """The actions of a policy's decision at ``now_s``, in s.

    Raises Nonsense unless the decision is a list of valid actions.
    """
    # An action is a tuple itself, so that a single one would pass for a list.
    if isinstance(decision, _ACTIONS) or not isinstance(
        decision, list | tuple
    ):
        raise Nonsense(
            f"answered {kind_of(decision)} instead of a list of actions",
            DECIDE_HINT,
        )
    if len(decision) > MAX_ACTIONS:
        raise Nonsense(
            f"answered {len(decision):,} actions, more than {MAX_ACTIONS:,}"
        )
    return [
        _checked_action(number, action, now_s)
        for number, action in enumerate(decision, 1)
    ]


def kind_of(value: object) -> str:
    """The type of a value, for a message: ``None``, ``a generator``, ``an int``."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _checked_action(number: int, action: Any, now_s: float) -> act.Action:
    # By the exact type, as the fields of a subclass could be properties that
    # return another value each time.
    kind = type(action)
    checks = _FIELD_CHECKS.get(kind)
    if checks is None:
        if isinstance(action, type) and action in _ACTIONS:
            raise Nonsense(
                f"answered the class {action.__name__} as action {number}: call it"
            )
        raise Nonsense(
            f"answered {kind_of(action)} as action {number}, which is no action",
            DECIDE_HINT,
        )
    before = [getattr(action, name) for name, _ in checks]
    after = []
    for (name, check), value in zip(checks, before, strict=True):
        try:
            after.append(check(value, now_s))
        except Nonsense as fault:
            raise Nonsense(
                f"action {number}, a {kind.__name__}, is refused: its {name} is {fault}",
                fault.hint,
            ) from None
    # Usually nothing was converted, and the action itself is returned.
    same = all(map(operator.is_, before, after))
    checked: act.Action = action if same else kind(*after)
    contradiction = _contradiction(checked)
    if contradiction is not None:
        raise Nonsense(refused_action(number, checked, contradiction))
    return checked


def _contradiction(action: act.Action) -> str | None:
    """The fault of fields that contradict each other; None where none do."""
    if isinstance(action, act.Reserve):
        end_s: float | None = action.end_s
        if action.end_s <= action.start_s:
            return "it ends before it starts"
    elif isinstance(action, act.Start | act.Resume | act.Migrate):
        end_s = action.reserve_until_s
    else:
        return None
    if end_s is not None and not action.kill_at_end:
        return "the job may run on with nothing reserved; say kill_at_end=True, or no end"
    return None


# -- checks of a field: each returns the value for the engine, or raises
# Nonsense; the second parameter is the time now, in s


def _job_id(value: object, _: float) -> str:
    if not isinstance(value, str):
        raise Nonsense(f"{shown(value)}, not a job's id")
    return value


def _reason(value: object, _: float) -> str:
    if not isinstance(value, str) or not value:
        raise Nonsense(f"{shown(value)}, not a reason in words")
    # Python's strings may hold half of a surrogate pair, which UTF-8 cannot
    # encode.
    if (
        not value.isascii()
        and value.encode("utf-8", "replace").decode("utf-8") != value
    ):
        raise Nonsense("not a text that can be written (UTF-8)")
    return value


def _job_ids(value: object, now_s: float) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise Nonsense(f"{shown(value)}, not a tuple of job ids")
    for job_id in value:
        _job_id(job_id, now_s)
    return tuple(value)


def _whole(value: Any) -> int:
    # By the exact type, as isinstance takes True for an int.
    if type(value) is int:
        return value
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise Nonsense(f"{shown(value)}, not a whole number")
    return int(value)


def _rate(value: object, _: float) -> int:
    if isinstance(value, float | np.floating):
        raise Nonsense(
            f"{shown(value)}, not a whole number of bit/s", WHOLE_RATE_HINT
        )
    rate_bps = _whole(value)
    if not 0 <= rate_bps <= MAX_LINK_BPS:
        raise Nonsense(
            f"{shown(value)}, not from 0 to {MAX_LINK_BPS:,} bit/s"
        )
    return rate_bps


def _new_rate(value: object, now_s: float) -> int:
    rate_bps = _rate(value, now_s)
    if not rate_bps:
        raise Nonsense(
            "0: a job does not run without bandwidth; Preempt or Kill it"
        )
    return rate_bps


def _number(value: Any) -> float:
    """A finite number, at most :data:`LONGEST_S` in size; an int stays one."""
    if type(value) is float and abs(value) <= LONGEST_S:
        return value
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if not is_number or isinstance(value, bool):
        raise Nonsense(f"{shown(value)}, not a number")
    try:
        # An int of hundreds of digits is too large for a float.
        number = float(value)
    except OverflowError:
        number = math.inf
    # `not <=` in place of `>` to refuse NaN too.
    if not abs(number) <= LONGEST_S:
        raise Nonsense(f"{number}, not a time within {LONGEST_S:g} s")
    if type(value) is int:
        return value
    return number


def _cost_s(value: object, _: float) -> float:
    cost_s = _number(value)
    if cost_s < 0:
        raise Nonsense(f"{cost_s:g}, less than no time")
    return cost_s


def _wake_time(value: object, now_s: float) -> float:
    at_s = _number(value)
    # With tolerance, as the sum of a policy may round below ``now_s``; it takes
    # no negative time.
    is_past = with_tolerance_s(max(at_s, 0.0)) < now_s
    if is_past or at_s < -with_tolerance_s(0.0):
        raise Nonsense(f"{at_s:.10g}, which is past")
    return at_s


def _not_past(value: object, now_s: float) -> float:
    at_s = _number(value)
    if at_s < now_s:
        raise Nonsense(f"{at_s:.10g}, which is past")
    return at_s


def _later(value: object, now_s: float) -> float:
    at_s = _number(value)
    if at_s <= now_s:
        raise Nonsense(f"{at_s:.10g}, which is not later than now")
    return at_s


def _later_or_none(value: object, now_s: float) -> float | None:
    if value is None:
        return None
    return _later(value, now_s)


def _time_or_none(value: object, _: float) -> float | None:
    if value is None:
        return None
    return _number(value)


def _flag(value: object, _: float) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise Nonsense(f"{shown(value)}, neither True nor False")
    return bool(value)


_TIERS = get_args(act.Tier)


def _tier(value: object, _: float) -> act.Tier:
    if not isinstance(value, str) or value not in _TIERS:
        raise Nonsense(f"{shown(value)}, not one of {', '.join(_TIERS)}")
    return value  # type: ignore[return-value]


def _placement(value: object, _: float) -> Placement:
    if not isinstance(value, Placement):
        raise Nonsense(f"{kind_of(value)}, not a Placement")
    try:
        root = _whole(value.root)
        vms_on = tuple(
            (_server_or_count(server), _server_or_count(count))
            for server, count in value.vms_on
        )
        processes = tuple(map(_server_or_count, value.processes))
    except Nonsense as fault:
        raise Nonsense(f"a placement that holds {fault}") from None
    except (TypeError, ValueError):
        raise Nonsense(
            "a placement whose vms_on are no (server, VMs) pairs, or whose"
            " processes are no list"
        ) from None
    return Placement(root, vms_on, processes)


def _server_or_count(value: object) -> int:
    number = _whole(value)
    if abs(number) > 1 << 31:
        raise Nonsense(
            f"{shown(number)}, which is no server's number and no count"
        )
    return number


def shown(value: object) -> str:
    """A value for a message: a number or the start of a text, else the type."""
    # str() raises for an int of more than 4,300 digits.
    if isinstance(value, int) and abs(value) > MAX_LINK_BPS:
        if value > 0:
            return "a number far too large"
        return "a number far below 0"
    if isinstance(value, bool | int | float | None | np.number):
        return str(value)
    if isinstance(value, str):
        return ascii(value[:40])
    return kind_of(value)


Check = Callable[[Any, float], Any]
_CHECKS: Mapping[str, Check] = {
    "job_id": _job_id,
    "placement": _placement,
    "rate_bps": _rate,
    "reason": _reason,
    "kill_at_end": _flag,
    "ask_at_end": _flag,
    "best_effort": _flag,
    "tier": _tier,
    "cost_s": _cost_s,
    "behind": _job_ids,
    "reserve_until_s": _later_or_none,
    "start_s": _not_past,
    "end_s": _later,
}
_CHECKS_OF_ONE_ACTION: Mapping[tuple[type, str], Check] = {
    (act.Rescale, "rate_bps"): _new_rate,
    (act.Shorten, "until_s"): _later,
    (act.Wait, "until_s"): _time_or_none,
    (act.Wake, "at_s"): _wake_time,
}
_ACTIONS: tuple[type, ...] = get_args(act.Action)


def _field_checks(kind: Any) -> list[tuple[str, Check]]:
    """Names of the fields of an action's type, each with its check."""
    checks = []
    # Dataclasses and named tuples both list their fields there.
    for name in kind.__match_args__:
        check = _CHECKS_OF_ONE_ACTION.get((kind, name)) or _CHECKS[name]
        checks.append((name, check))
    return checks


_FIELD_CHECKS = {kind: _field_checks(kind) for kind in _ACTIONS}
