"""Why a lease is rejected, in words a person can act on."""

from __future__ import annotations

from testbed.schedulers.lease_book import UNLIMITED_MIB, Lease, LeaseBook, cores_text


def never_fits(book: LeaseBook, lease: Lease, n_links: int) -> str | None:
    """Why the empty data centre could not hold it; None where it could."""
    cores = lease.each.cores
    if lease.request.bandwidth_bps and n_links:
        return "it asks for bandwidth, and leases have cores and memory alone"
    most = book.most_vms(lease.each)
    if most >= lease.request.n_vms:
        return None
    if most == 0:
        most_cores = int(book.calendar.cores.max())
        if cores > most_cores:
            return f"{cores_text(cores)} asked, no host has more than {most_cores}"
        return f"{lease.asks} asked, no host has more than {book.calendar.memory_mib.max()} MiB"
    return f"{lease.asks} asked, the empty hosts hold {most} of them"


def no_room_now(book: LeaseBook, lease: Lease) -> str:
    """An immediate lease that came at the wrong time."""
    return f"{lease.asks} asked at once, {_left(book, lease, book.now_s)}"


def no_room_at(book: LeaseBook, lease: Lease, start_s: float) -> str:
    """An advance reservation that others had made before."""
    return f"{lease.asks} asked, {_left(book, lease, start_s)}"


def _left(book: LeaseBook, lease: Lease, start_s: float) -> str:
    """What is left on the host that has the most left, if best-effort leases give way."""
    end_s = start_s + lease.remaining_s
    calendar = book.calendar
    host = calendar.emptiest(start_s, end_s, firm=True)
    use = calendar.used(host, start_s, end_s, firm=True)
    left = cores_text(int(calendar.cores[host]) - use.cores)
    if lease.each.memory_mib and calendar.memory_mib[host] < UNLIMITED_MIB:
        left += f" and {calendar.memory_mib[host] - use.memory_mib} MiB"
    return (
        f"from {start_s:.6g} s to {end_s:.6g} s advance, immediate and once preempted leases leave"
        f" {left} on {book.name(host)}, the emptiest host"
    )
