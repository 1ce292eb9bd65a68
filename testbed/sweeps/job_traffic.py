"""The traffic of a launched program in a live run, from its job's end.

Each VM's kernel counts what the VM sends and receives, and what its TCP sends
again (:class:`jobs.live.agent_protocol.VmTraffic`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jobs.wire import FRAME_HEADER_BYTES, SEGMENT_BYTES
from testbed import events


@dataclass(frozen=True)
class JobTraffic:
    """Traffic of all VMs of a job, from their common start to the last end.

    ``use``: bits of the VM that sent or received most, over what its rate
    carries in that time (0 to 1). ``packet_bytes``: the mean of what the kernel
    sent in one piece, at most one packet of segmentation offload.
    """

    use: float
    sent_bytes: float
    packet_bytes: float
    segments: float
    resent: float
    timeouts: float

    @property
    def resent_share(self) -> float:
        """Share of the TCP segments that were sent again."""
        return self.resent / max(1, self.segments)


def job_traffic(
    recorded: Iterable[events.Event],
) -> dict[str, JobTraffic]:
    """The traffic of a live run's programs, by job."""
    by_job = {}
    for event in recorded:
        if not isinstance(event, events.JobEnded):
            continue
        traffic = _traffic(event.detail)
        if traffic is not None:
            by_job[event.job_id] = traffic
    return by_job


def _traffic(detail: Mapping[str, Any]) -> JobTraffic | None:
    rows = detail.get("traffic") or ()
    ends_s = [row["took_s_raw"] for row in detail.get("ranks") or ()]
    # A simulated job has neither, nor has one without launched programs.
    if not rows or not ends_s:
        return None
    sent_bytes = 0
    packets = 0
    busiest_bytes = 0.0
    for row in rows:
        sent_bytes += row["sent_bytes"]
        packets += row["packets_sent"]
        sent = _wire_bytes(row["sent_bytes"], row["packets_sent"])
        received = _wire_bytes(
            row["received_bytes"], row["packets_received"]
        )
        busiest_bytes = max(busiest_bytes, sent, received)
    carried_bits = detail["rate_bps_raw"] * max(ends_s)
    return JobTraffic(
        use=8 * busiest_bytes / max(1.0, carried_bits),
        sent_bytes=sent_bytes,
        packet_bytes=sent_bytes / max(1, packets),
        segments=sum(row["segments"] for row in rows),
        resent=sum(row["resent"] for row in rows),
        timeouts=sum(row["timeouts"] for row in rows),
    )


def _wire_bytes(counted_bytes: int, packets: int) -> float:
    """Bytes of frames, where an interface counts a packet of several segments
    with one header.
    """
    frames = counted_bytes / SEGMENT_BYTES
    return counted_bytes + FRAME_HEADER_BYTES * max(0.0, frames - packets)
