"""The calendar equals a plain interval array, on random histories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.schedulers.lease_calendar import (
    FIRM,
    PREEMPTED,
    PREEMPTIBLE,
    Booking,
    Calendar,
    Use,
)
from tests.support.calendar_check import check_calendar
from tests.support.examples import examples

HOSTS, HORIZON = 5, 240
CORES, MEMORY = np.array([4, 4, 6, 8, 6]), np.array([10, 10, 20, 30, 20])


class Plain:
    """Cores and memory in use, second by second, of all leases and of the firm ones."""

    def __init__(self) -> None:
        self.use = np.zeros((2, 2, HOSTS, HORIZON), dtype=np.int64)
        self.bookings: dict[tuple[int, str], Booking] = {}

    def change(self, host: int, booking: Booking, sign: int) -> None:
        for kind in (0,) if booking.flag == PREEMPTIBLE else (0, 1):
            part = self.use[
                kind, :, host, int(booking.start_s) : int(booking.end_s)
            ]
            part += sign * np.array([[booking.cores], [booking.memory_mib]])
        key = (host, booking.lease_id)
        if sign > 0:
            self.bookings[key] = booking
        else:
            del self.bookings[key]

    def used(self, host: int, start: int, end: int, *, firm: bool) -> Use:
        most = self.use[int(firm), :, host, start:end].max(axis=1)
        return Use(int(most[0]), int(most[1]))

    def left(
        self, first: float, end: float, *, firm: bool
    ) -> list[tuple[int, int]]:
        """Cores and memory that each host has left from first to end."""
        use = self.use[int(firm), :, :, int(first) : int(end)].max(
            axis=2, initial=0
        )
        return [
            (int(c), int(m))
            for c, m in zip(CORES - use[0], MEMORY - use[1], strict=True)
        ]


@st.composite
def histories(
    draw: st.DrawFn,
) -> list[tuple[str, int, int, int, int, int, int]]:
    """One step: operation, host, start, length, cores, memory, flag."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from(["add", "add", "add", "remove", "forget"]),
                st.integers(0, HOSTS - 1),
                st.integers(0, 60),
                st.integers(1, 50),
                st.integers(1, 3),
                st.integers(0, 9),
                st.sampled_from([FIRM, PREEMPTIBLE, PREEMPTED]),
            ),
            max_size=30,
        )
    )


@pytest.mark.slow
@given(histories(), st.sampled_from([1.0, 7.0, 10.0, 64.0, 500.0]))
@examples(60)
def test_the_calendar_equals_a_plain_array(
    history: list[tuple[str, int, int, int, int, int, int]], slot_s: float
) -> None:
    calendar, plain, now = Calendar(CORES, MEMORY, slot_s), Plain(), 0
    for number, (
        what,
        host,
        start,
        length,
        cores,
        memory,
        flag,
    ) in enumerate(history):
        if what == "add":
            begin = now + start
            booking = Booking(
                float(begin),
                f"l{number}",
                float(begin + length),
                cores,
                memory,
                flag,
            )
            calendar.add(host, booking)
            plain.change(host, booking, 1)
        elif what == "remove" and plain.bookings:
            at, lease_id = sorted(plain.bookings)[
                start % len(plain.bookings)
            ]
            plain.change(at, calendar.remove(at, lease_id), -1)
        elif what == "forget":
            now = min(now + length // 10, 100)
            calendar.forget_before(float(now))
        begin, end = now + start // 2, now + start // 2 + length
        for firm in (False, True):
            expected = plain.used(host, begin, end, firm=firm)
            assert calendar.used(host, begin, end, firm=firm) == expected
            check_all_hosts(
                calendar, plain, begin, end, Use(cores, memory), firm=firm
            )
        there = [
            b
            for (at, _), b in plain.bookings.items()
            if at == host
            and b.flag == PREEMPTIBLE
            and b.start_s < end
            and b.end_s > begin
        ]
        assert calendar.preemptible(host, begin, end) == sorted(there)
    check_calendar(calendar)


def check_all_hosts(
    calendar: Calendar,
    plain: Plain,
    begin: int,
    end: int,
    wanted: Use,
    *,
    firm: bool,
) -> None:
    """Whom the calendar names, and in which order, against a look at every host."""
    slot_s = calendar.slot_s
    first, last = begin // slot_s, -(-end // slot_s) - 1
    left = plain.left(first * slot_s, (last + 1) * slot_s, firm=firm)
    inside = plain.left(
        (first + 1) * slot_s, max(last, first + 1) * slot_s, firm=firm
    )
    ranked = [
        host
        for _, host in sorted(
            (cores, host) for host, (cores, _) in enumerate(left)
        )
    ]
    room = [
        h
        for h in ranked
        if left[h][0] >= wanted.cores and left[h][1] >= wanted.memory_mib
    ]
    # Nobody need have memory for a lease that asks for none, however much is booked there.
    if not wanted.memory_mib:
        room = [h for h in ranked if left[h][0] >= wanted.cores]
    assert (
        list(calendar.most_used_first(begin, end, wanted, firm=firm))
        == room
    )
    perhaps = [h for h in ranked if inside[h][0] >= wanted.cores]
    assert (
        list(calendar.perhaps_room(begin, end, wanted, firm=firm))
        == perhaps
    )
    most = max(cores for cores, _ in left)
    assert calendar.emptiest(begin, end, firm=firm) == [
        c for c, _ in left
    ].index(most)
    for host in range(HOSTS):
        use = plain.used(host, begin, end, firm=firm)
        fits = use.cores + wanted.cores <= CORES[host]
        fits = fits and use.memory_mib + wanted.memory_mib <= MEMORY[host]
        assert calendar.fits(host, begin, end, wanted, firm=firm) == fits


@pytest.mark.parametrize("cores", [1, 63, 64, 127, 128, 40_000])
def test_hosts_of_any_size_are_ranked_by_what_is_left(cores: int) -> None:
    calendar = Calendar(np.array([cores, cores]), np.array([9, 9]), 10.0)
    assert list(calendar.most_used_first(0.0, 25.0, Use(cores, 0))) == [
        0,
        1,
    ]
    assert (
        list(calendar.most_used_first(0.0, 25.0, Use(cores + 1, 0))) == []
    )
    calendar.add(1, Booking(5.0, "a", 15.0, cores, 0))
    assert list(calendar.most_used_first(0.0, 25.0, Use(1, 0))) == [0]
    assert list(calendar.perhaps_room(12.0, 35.0, Use(cores, 0))) == [1, 0]
    assert calendar.emptiest(0.0, 5.0) == 0
    # Far behind the last bucket that anything is booked in, all is free.
    assert list(calendar.most_used_first(1e7, 2e7, Use(cores, 9))) == [0, 1]
    check_calendar(calendar)


def test_memory_is_looked_at_in_the_order_of_what_is_left() -> None:
    calendar = Calendar(np.full(70, 4), np.full(70, 100), 10.0)
    for host in range(70):
        calendar.add(host, Booking(0.0, "a", 10.0, 1 + host % 3, 60))
    with_memory = (65, 13, 69)
    for host in with_memory:
        calendar.remove(host, "a")
        calendar.add(host, Booking(0.0, "b", 10.0, 1 + host % 3, 50))
    found = list(calendar.most_used_first(0.0, 10.0, Use(1, 50)))
    assert found == sorted(
        with_memory, key=lambda host: (3 - host % 3, host)
    )


def test_a_lease_that_follows_another_in_a_bucket_is_not_counted_twice() -> (
    None
):
    calendar = Calendar(np.array([4]), np.array([100]), 10.0)
    calendar.add(0, Booking(0.0, "a", 5.0, 4, 100))
    assert calendar.fits(0, 5.0, 9.0, Use(4, 100))
    calendar.add(0, Booking(5.0, "b", 9.0, 4, 100))
    assert list(calendar.most_used_first(10.0, 20.0, Use(4, 100))) == [0]
    assert calendar.used(0, 0.0, 10.0) == Use(4, 100)
    check_calendar(calendar)


def test_what_began_before_the_forgotten_time_still_counts() -> None:
    calendar = Calendar(np.array([4]), np.array([100]), 1.0)
    calendar.add(0, Booking(0.0, "long", 500.0, 3, 60))
    calendar.add(0, Booking(450.0, "later", 460.0, 1, 10))
    calendar.forget_before(300.0)
    assert calendar.used(0, 300.0, 301.0) == Use(3, 60)
    assert list(calendar.most_used_first(499.0, 501.0, Use(2, 0))) == []
    assert list(calendar.most_used_first(500.0, 502.0, Use(2, 0))) == [0]
    check_calendar(calendar)
    calendar.remove(0, "long")
    assert calendar.used(0, 300.0, 1000.0) == Use(1, 10)
    check_calendar(calendar)


def test_a_lease_is_on_a_host_once() -> None:
    calendar = Calendar(np.array([4]), np.array([100]), 10.0)
    calendar.add(0, Booking(0.0, "a", 5.0, 1, 1))
    with pytest.raises(ValueError, match="booked on host 0 already"):
        calendar.add(0, Booking(6.0, "a", 7.0, 1, 1))
    with pytest.raises(ValueError, match="above 0"):
        Calendar(np.array([4]), np.array([100]), 0.0)
