"""The availability list and the job search equal slow twins that look at every host."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.schedulers.lease_availability import AvailabilityList
from testbed.schedulers.lease_calendar import (
    FIRM,
    PREEMPTED,
    PREEMPTIBLE,
    Booking,
    Calendar,
    Use,
)
from tests.support.examples import examples

CORES, MEMORY = np.array([2, 3, 4, 4]), np.array([6, 6, 10, 3])
HOSTS, FAR = len(CORES), 120


def free_at(bookings: list[Booking], cores: int, at: float) -> int:
    return cores - sum(
        b.cores for b in bookings if b.start_s <= at < b.end_s
    )


def slow_until(
    bookings: list[Booking], cores: int, k: int, now: int
) -> float:
    """Time for which k cores stay free, second by second."""
    return next(
        (t for t in range(now, FAR) if free_at(bookings, cores, t) < k),
        math.inf,
    )


def slow_available(
    bookings: list[Booking], cores: int, k: int, now: int
) -> float:
    """From when on k cores are free for good, looking back from the end."""
    short = [t for t in range(now, FAR) if free_at(bookings, cores, t) < k]
    return max(short) + 1 if short else -math.inf


def slow_fits(
    bookings: list[Booking], host: int, start: int, end: int, wanted: Use
) -> bool:
    for t in range(start, end):
        memory = sum(
            b.memory_mib for b in bookings if b.start_s <= t < b.end_s
        )
        if free_at(bookings, int(CORES[host]), t) < wanted.cores:
            return False
        if wanted.memory_mib and memory + wanted.memory_mib > MEMORY[host]:
            return False
    return True


def slow_earliest(
    booked: list[list[Booking]],
    now: int,
    vm: Use,
    n_vms: int,
    by_use: bool,
) -> tuple[float, dict[int, int]] | None:
    """When all VMs have room for good, second by second, and where."""
    rooms = []
    for host, mine in enumerate(booked):
        if any(b.advance for b in mine):
            continue
        tie = free_at(mine, int(CORES[host]), now) if by_use else host
        for count in range(1, n_vms + 1):
            size = Use(count * vm.cores, count * vm.memory_mib)
            # Looking back from the end, as long as it fits.
            start = FAR
            while start > now and slow_fits(
                mine, host, start - 1, start, size
            ):
                start -= 1
            if start < FAR:
                rooms.append((start, tie, host))
    rooms.sort()
    if len(rooms) < n_vms:
        return None
    start = rooms[n_vms - 1][0]
    return start, Counter(host for *_, host in rooms[:n_vms])


Step = tuple[str, int, int, int, int, int, int, bool]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "pass"]),
        st.integers(0, HOSTS - 1),
        st.integers(0, 8),
        st.integers(1, 10),
        st.integers(1, 4),
        st.integers(0, 4),
        st.sampled_from([FIRM, PREEMPTIBLE, PREEMPTED]),
        st.sampled_from([False] * 7 + [True]),
    ),
    min_size=8,
    max_size=25,
)


@pytest.mark.slow
@given(STEPS, st.booleans())
@examples(60)
def test_both_lists_equal_their_slow_twins(
    steps: list[Step], most_used_first: bool
) -> None:
    calendar = Calendar(CORES, MEMORY, 4.0)
    ral = AvailabilityList(calendar, most_used_first=most_used_first)
    booked: list[dict[str, Booking]] = [{} for _ in range(HOSTS)]
    now = 0
    for number, (
        what,
        host,
        start,
        length,
        cores,
        memory,
        flag,
        advance,
    ) in enumerate(steps):
        wanted = Use(cores, memory)
        begin, end = now + start, now + start + length
        mine = list(booked[host].values())
        if what == "add" and slow_fits(mine, host, begin, end, wanted):
            new = Booking(
                float(begin),
                f"l{number}",
                float(end),
                cores,
                memory,
                flag,
                advance,
            )
            calendar.add(host, new)
            booked[host][new.lease_id] = new
        elif what == "remove" and booked[host]:
            old = calendar.remove(host, min(booked[host]))
            del booked[host][old.lease_id]
        elif what == "pass":
            now += length // 3
            for place in range(
                HOSTS
            ):  # what has ended is taken out by whoever ended it
                for over in [
                    b for b in booked[place].values() if b.end_s <= now
                ]:
                    calendar.remove(place, over.lease_id)
                    del booked[place][over.lease_id]
        ral.update(float(now))
        check_rows(ral, booked, now)
        check_answers(ral, booked, now, length, wanted)
        # One core, so that memory decides.
        for vm in (wanted, Use(1, memory), Use(1, memory // 2 + 1)):
            check_earliest(ral, booked, now, vm, most_used_first)
        check_preemption(calendar, booked, host, begin, end)


def check_rows(
    ral: AvailabilityList, booked: list[dict[str, Booking]], now: int
) -> None:
    for host in range(HOSTS):
        mine, cores, most = (
            list(booked[host].values()),
            int(CORES[host]),
            int(CORES.max()),
        )
        free = free_at(mine, cores, now)
        assert ral.free_cores[host] == free
        memory = sum(
            b.memory_mib for b in mine if b.start_s <= now < b.end_s
        )
        assert ral.free_memory_mib[host] == MEMORY[host] - memory
        expected = [
            slow_until(mine, cores, k, now) for k in range(1, free + 1)
        ]
        assert ral.until_s[:, host].tolist() == expected + [-math.inf] * (
            most - free
        )
        everywhere = [
            slow_available(mine, cores, k, now) for k in range(1, cores + 1)
        ]
        open_ = [] if any(b.advance for b in mine) else everywhere
        assert ral.available_s[:, host].tolist() == open_ + [math.inf] * (
            most - len(open_)
        )


def check_answers(
    ral: AvailabilityList,
    booked: list[dict[str, Booking]],
    now: int,
    length: int,
    wanted: Use,
) -> None:
    all_hosts = [list(mine.values()) for mine in booked]
    good = [
        h
        for h in range(HOSTS)
        if slow_fits(all_hosts[h], h, now, now + length, wanted)
    ]
    found = ral.most_used(float(now), float(now + length), wanted)
    cores = [int(c) for c in CORES]
    frees = [
        free_at(mine, cores[h], now) for h, mine in enumerate(all_hosts)
    ]
    ranked = [
        (frees[h], slow_until(all_hosts[h], cores[h], wanted.cores, now), h)
        for h in good
    ]
    assert found == (min(ranked)[2] if good else None)


def check_earliest(
    ral: AvailabilityList,
    booked: list[dict[str, Booking]],
    now: int,
    vm: Use,
    most_used_first: bool,
) -> None:
    all_hosts = [list(mine.values()) for mine in booked]
    for n_vms in (1, 2, 5):
        by_use = most_used_first and n_vms == 1
        assert ral.earliest(float(now), vm, n_vms) == slow_earliest(
            all_hosts, now, vm, n_vms, by_use
        )


def check_preemption(
    calendar: Calendar,
    booked: list[dict[str, Booking]],
    host: int,
    begin: int,
    end: int,
) -> None:
    everything = sorted(
        (at, b.start_s, b.lease_id, b.end_s, b.cores, b.flag)
        for at, mine in enumerate(booked)
        for b in mine.values()
        if b.flag != FIRM
    )
    expected = [
        row for row in everything
        if row[0] == host and row[1] < end and row[3] > begin and row[5] == PREEMPTIBLE
    ]  # fmt: skip
    found = calendar.preemptible(host, begin, end)
    assert [
        (host, b.start_s, b.lease_id, b.end_s, b.cores, b.flag)
        for b in found
    ] == expected


def test_a_row_says_when_it_is_out_of_date_by_itself() -> None:
    calendar = Calendar(np.array([4]), np.array([10]), 10.0)
    for booking in (
        Booking(5.0, "a", 9.0, 2, 3),
        Booking(0.0, "b", 7.0, 1, 1),
    ):
        calendar.add(0, booking)
    ral = AvailabilityList(calendar)
    ral.update(2.0)
    assert (ral.free_cores.tolist(), ral.free_memory_mib.tolist()) == (
        [3],
        [9],
    )
    assert ral.until_s[:, 0].tolist() == [math.inf, 5.0, 5.0, -math.inf]
    assert ral.available_s[:, 0].tolist() == [-math.inf, 7.0, 9.0, 9.0]
    ral.update(5.0)
    assert (ral.free_cores.tolist(), ral.free_memory_mib.tolist()) == (
        [1],
        [6],
    )


def test_hosts_that_wait_for_cores_and_for_memory_come_in_one_order() -> (
    None
):
    calendar = Calendar(np.array([4, 4, 4]), np.array([10, 10, 10]), 10.0)
    for host, booking in enumerate(
        (
            Booking(0.0, "a", 10.0, 4, 1),
            Booking(0.0, "b", 10.0, 4, 1),
            Booking(0.0, "c", 10.0, 1, 10),
        )
    ):
        calendar.add(host, booking)
    ral = AvailabilityList(calendar)
    assert ral.earliest(0.0, Use(3, 0), 1) == (0.0, {2: 1})
    assert ral.earliest(0.0, Use(3, 1), 1) == (10.0, {0: 1})
    assert ral.earliest(0.0, Use(3, 1), 2) == (10.0, {0: 1, 1: 1})
    assert ral.earliest(0.0, Use(3, 1), 4) is None
    assert ral.earliest(0.0, Use(1, 11), 1) is None
