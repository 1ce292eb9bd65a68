"""The difference by example; its properties over whole networks are in test_forwarding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from controller.flow_rules import (
    COOKIE_TAG,
    AddFlow,
    Drop,
    Flow,
    FlowReport,
    Goto,
    Match,
    Output,
    RemoveByCookie,
    RemoveFlow,
    difference,
    is_ours,
    tenant_cookie,
)

FIRST = Flow(0, 100, Match(in_port=1), Goto(1), COOKIE_TAG | 1)
SECOND = Flow(
    1, 200, Match(ipv4=True, nw_dst="10.0.4.1"), Output(1), COOKIE_TAG | 1
)
OTHER = Flow(0, 100, Match(in_port=2), Goto(1), COOKIE_TAG | 2)
FOREIGN = Flow(0, 7, Match(in_port=3), Drop(), 99)
WANTED = (FIRST, SECOND, OTHER)


def test_nothing_to_do() -> None:
    assert difference(WANTED, FlowReport((OTHER, SECOND, FIRST))) == ()


def test_what_is_missing_is_added_in_the_wanted_order() -> None:
    assert difference(WANTED, FlowReport((SECOND,))) == (
        AddFlow(FIRST),
        AddFlow(OTHER),
    )


def test_what_is_ours_and_not_wanted_is_removed() -> None:
    stale = replace(FIRST, match=Match(in_port=9))
    assert difference(WANTED, FlowReport((*WANTED, stale))) == (
        RemoveFlow(stale),
    )


def test_what_does_something_else_is_replaced_and_not_removed() -> None:
    """Between a removal and an addition there would be a rule too few."""
    for wrong in (
        replace(FIRST, action=Drop()),
        replace(FIRST, cookie=COOKIE_TAG | 7),
    ):
        assert difference(WANTED, FlowReport((wrong, SECOND, OTHER))) == (
            AddFlow(FIRST),
        )


def test_a_foreign_rule_in_the_place_of_ours_is_replaced() -> None:
    born_with = replace(FIRST, cookie=0, action=Output(0xFFFFFFFA))
    *removals, last = difference(
        WANTED, FlowReport((born_with, SECOND, OTHER))
    )
    assert last == AddFlow(FIRST)
    assert removed(removals, 0)


def removed(changes: Iterable[object], cookie: int) -> bool:
    """True if rules of this cookie are removed by these changes, and none of ours."""
    fits = False
    for change in changes:
        assert isinstance(change, RemoveByCookie)
        for ours in (COOKIE_TAG, COOKIE_TAG | 0xFFFFFFFF):
            assert (ours ^ change.cookie) & change.mask
        fits = fits or not (cookie ^ change.cookie) & change.mask
    return fits


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_rules_of_others_are_removed_by_few_changes_and_ours_stay(
    cookies: list[int],
) -> None:
    foreign = [cookie for cookie in cookies if not is_ours(cookie)]
    report = FlowReport(
        (
            *WANTED,
            *(replace(FOREIGN, cookie=each) for each in foreign[::2]),
        ),
        tuple(foreign[1::2]),
    )
    changes = difference(WANTED, report)
    assert len(changes) <= 32
    for cookie in foreign:
        assert removed(changes, cookie)


def test_an_unreadable_rule_of_ours_takes_its_cookies_rules_with_it_and_they_come_back() -> (
    None
):
    report = FlowReport(WANTED, other_cookies=(COOKIE_TAG | 1,))
    assert difference(WANTED, report) == (
        RemoveByCookie(COOKIE_TAG | 1),
        AddFlow(FIRST),
        AddFlow(SECOND),
    )


def test_an_unreadable_rule_of_a_tenant_that_is_gone() -> None:
    stale = replace(FIRST, match=Match(in_port=9), cookie=COOKIE_TAG | 3)
    report = FlowReport(
        (*WANTED, stale), other_cookies=(COOKIE_TAG | 3, COOKIE_TAG | 3)
    )
    assert difference(WANTED, report) == (RemoveByCookie(COOKIE_TAG | 3),)


def test_a_tenant_is_removed_by_its_cookie_and_all_of_it() -> None:
    change = RemoveByCookie(tenant_cookie(1))
    assert change == RemoveByCookie(COOKIE_TAG | 1, 0xFFFFFFFF_FFFFFFFF)


def test_whose_rules_are_whose() -> None:
    assert is_ours(COOKIE_TAG)
    assert is_ours(COOKIE_TAG | 16383)
    assert not is_ours(0)
    assert not is_ours(16383)
    assert not is_ours(COOKIE_TAG ^ 1 << 63)
    report = FlowReport((FIRST, FOREIGN), (COOKIE_TAG | 1, 5, 5))
    assert report.foreign_cookies == [99, 5, 5]
