"""Reasons why p·b/b' holds, is close, or is violated, from what was counted."""

from __future__ import annotations

from typing import Literal

from testbed.sweeps.job_traffic import JobTraffic

BoundVerdict = Literal[
    "reference", "holds", "close", "violated", "undecided"
]
LOSS = 0.01
"""Share of segments sent again, or of the time in which TCP waited for its
timeouts, from which losses are a reason.
"""
LEAST_TIMEOUT_S = 0.2
"""The least time for which TCP waits before it sends again unasked (Linux's
``TCP_RTO_MIN``).
"""
MORE = 1.05
"""Ratio of bytes to those at b from which a program sends more."""
LIMITED = 0.5
"""Share of the time in which the network limits, from which it is the reason."""


def reason(
    verdict: BoundVerdict,
    now: JobTraffic | None,
    at_b: JobTraffic | None,
    network_share: float | None,
    measured_s: float,
) -> str:
    """A few words; empty where nothing was counted, or nothing is scaled."""
    if now is None or at_b is None or verdict == "reference":
        return ""
    used = f"used {100 * at_b.use:.0f} % of b"
    if verdict == "holds":
        return f"computes or waits: {used}"
    if verdict == "close":
        return f"network-limited: {used}"
    return f"{_excess(now, at_b, network_share, measured_s)}; {used}"


def _excess(
    now: JobTraffic,
    at_b: JobTraffic,
    network_share: float | None,
    measured_s: float,
) -> str:
    """The reason of a ratio above 1, or about it."""
    sent = now.sent_bytes / max(1, at_b.sent_bytes)
    if sent > MORE:
        return f"sends {sent:.2f} times its bytes at b"
    # Of a program in step, all wait for the one that waits for a timeout.
    timeouts_s = now.timeouts * LEAST_TIMEOUT_S
    if now.resent_share >= LOSS or timeouts_s >= LOSS * measured_s:
        share = 100 * now.resent_share
        return (
            f"losses: {share:.1f} % sent again, {now.timeouts:.0f} timeouts"
        )
    if network_share is not None and network_share < LIMITED:
        return f"not the network: it limits {100 * network_share:.0f} %"
    return "no losses, no more bytes"
