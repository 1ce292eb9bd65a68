"""From what a switch reports to what it ought to have, as a list of changes. Pure.

Only rules that carry our cookie tag are ever touched. What somebody else put there stays, is
counted, and is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.flows import COOKIE_ALL_BITS, COOKIE_TAG, COOKIE_TAG_MASK, Flow, tenant_cookie


@dataclass(frozen=True)
class AddFlow:
    """Add a rule; one with the same table, priority and match is replaced."""

    flow: Flow


@dataclass(frozen=True)
class RemoveFlow:
    """Remove exactly this rule."""

    flow: Flow


@dataclass(frozen=True)
class RemoveByCookie:
    """Remove, in all tables, every rule whose cookie agrees with `cookie` in the bits of `mask`."""

    cookie: int
    mask: int = COOKIE_ALL_BITS


Change = AddFlow | RemoveFlow | RemoveByCookie


@dataclass(frozen=True)
class FlowReport:
    """What a switch says it has.

    `flows` are those whose shape we know, whoever made them; `other_cookies` are the cookies of
    all the rest (matches or actions that this controller never uses).
    """

    flows: tuple[Flow, ...] = ()
    other_cookies: tuple[int, ...] = ()

    @property
    def foreign_count(self) -> int:
        """How many rules there are that we did not make."""
        cookies = [flow.cookie for flow in self.flows] + list(self.other_cookies)
        return sum(not is_ours(cookie) for cookie in cookies)

    def joined(self, other: FlowReport) -> FlowReport:
        """This report and its continuation."""
        return FlowReport(self.flows + other.flows, self.other_cookies + other.other_cookies)


def is_ours(cookie: int) -> bool:
    """Whether a rule with this cookie was made by this controller, now or in an earlier life."""
    return cookie & COOKIE_TAG_MASK == COOKIE_TAG


def difference(desired: Iterable[Flow], report: FlowReport) -> tuple[Change, ...]:
    """The changes after which the switch has all of `desired` and nothing else of ours.

    Rules that are right already are left alone, counters and all. A rule of ours in a shape we
    cannot read is removed by its cookie, and the desired rules of that cookie are put in anew;
    applied as one bundle, traffic notices nothing.
    """
    wanted = {flow.key: flow for flow in desired}
    ours = [flow for flow in report.flows if is_ours(flow.cookie)]
    garbled = sorted({cookie for cookie in report.other_cookies if is_ours(cookie)})
    changes: list[Change] = [RemoveByCookie(cookie) for cookie in garbled]
    changes += [
        RemoveFlow(flow) for flow in ours if flow.key not in wanted and flow.cookie not in garbled
    ]
    present = {flow for flow in ours if flow.cookie not in garbled}
    changes += [AddFlow(flow) for flow in wanted.values() if flow not in present]
    return tuple(changes)


def added(flows: Iterable[Flow]) -> tuple[Change, ...]:
    """The changes that bring these rules in."""
    return tuple(AddFlow(flow) for flow in flows)


def removed(tenant_id: int) -> tuple[Change, ...]:
    """The changes that take all rules of a tenant out."""
    return (RemoveByCookie(tenant_cookie(tenant_id)),)
