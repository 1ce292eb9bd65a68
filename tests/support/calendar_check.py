"""Check of a lease calendar's sums and lists against its bookings."""

from __future__ import annotations

from testbed.schedulers.lease_calendar import (
    Calendar,
    firm_ones,
    greatest_use,
)


def check_calendar(calendar: Calendar) -> None:
    """Derives every bucket anew; AssertionError where a sum or a list differs."""
    for host in range(len(calendar.cores)):
        for row in range(calendar._sums.shape[3]):
            _check_bucket(calendar, host, row)


def _check_bucket(calendar: Calendar, host: int, row: int) -> None:
    bucket = row + calendar._first
    name = f"bucket {bucket} of host {host}"
    start_s = bucket * calendar.slot_s
    end_s = (bucket + 1) * calendar.slot_s
    inside = sorted(
        booking
        for booking in calendar.bookings(host)
        if booking.start_s < end_s and booking.end_s > start_s
    )
    assert inside == calendar._list(bucket, host), (
        f"{name} does not list its leases"
    )
    for kind, counted in enumerate((inside, firm_ones(inside))):
        sums = calendar._sums[host, kind, :, row].tolist()
        assert sums == list(greatest_use(counted, start_s, end_s)), (
            f"{name}: sums are wrong"
        )
        free = calendar._free[kind, row, host]
        assert free == calendar.cores[host] - sums[0], (
            f"{name}: free cores differ"
        )
