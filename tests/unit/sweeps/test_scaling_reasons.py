"""Traffic of launched programs, and what it makes of a verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed import events
from testbed.record.metrics import JobRow
from testbed.report.plot_files import COLOURS, file_figure
from testbed.sweeps.job_traffic import JobTraffic, job_traffic
from testbed.sweeps.measured_scaling import (
    Repetition,
    ScaledRun,
    ScalingPoint,
    measured_scaling,
    repetitions_of,
    table_lines,
)
from testbed.sweeps.printed_latency import latency_rows
from testbed.sweeps.reason_pictures import reason_pictures
from testbed.sweeps.scaling_pictures import draw, marker

MBPS = 1_000_000
QUIET = JobTraffic(
    use=0.95,
    sent_bytes=1e6,
    packet_bytes=9000.0,
    segments=1000,
    resent=0,
    timeouts=0,
)


def repetitions(ratio: float, now: JobTraffic | None) -> list[Repetition]:
    made = []
    for off_s in (-0.01, 0.0, 0.01):
        made.append(
            Repetition(
                "sort",
                100 * MBPS,
                4.0,
                {50 * MBPS: ScaledRun(8.0 * ratio + off_s, 1.0, now)},
                None if now is None else QUIET,
            )
        )
    return made


def point(ratio: float, now: JobTraffic | None) -> ScalingPoint:
    (found,) = measured_scaling(repetitions(ratio, now))
    return found.points[0]


def test_reasons_follow_from_what_was_counted() -> None:
    more = replace(QUIET, sent_bytes=2e6)
    lost = replace(QUIET, resent=30, timeouts=3)
    assert point(0.98, QUIET).reason == "network-limited: used 95 % of b"
    assert point(0.5, QUIET).reason == "computes or waits: used 95 % of b"
    assert point(1.5, more).reason == (
        "sends 2.00 times its bytes at b; used 95 % of b"
    )
    assert point(1.5, lost).reason == (
        "losses: 3.0 % sent again, 3 timeouts; used 95 % of b"
    )
    waited = replace(QUIET, resent=8, timeouts=8)
    assert point(1.5, waited).reason == (
        "losses: 0.8 % sent again, 8 timeouts; used 95 % of b"
    )
    # Two tenths of a second of twelve may not be what it is.
    hardly = replace(QUIET, resent=0.5, timeouts=0.5)
    assert point(1.5, hardly).reason.startswith("no losses, no more bytes")
    assert point(1.5, QUIET).reason.startswith("no losses, no more bytes")
    slow = point(1.5, QUIET)
    elsewhere = replace(
        slow,
        runs=tuple(replace(run, network_share=0.2) for run in slow.runs),
    )
    assert elsewhere.reason.startswith("not the network: it limits 20 %")
    assert point(1.5, None).reason == ""
    at_b = replace(point(1.0, QUIET), scaled_down=False)
    assert at_b.reason == ""


def test_the_record_and_the_table_have_the_counters() -> None:
    made = point(1.5, replace(QUIET, resent=30)).to_json()
    assert made["verdict"] == "violated"
    assert made["traffic"]["resent"] == 30
    assert made["traffic_at_b"]["use"] == pytest.approx(0.95)
    for counted in (QUIET, None):
        lines = table_lines(measured_scaling(repetitions(1.0, counted)))
        use = None if counted is None else 0.95
        assert [line[8] for line in lines] == [use] * 3


def vm(number: int, sent_bytes: int, packets: int) -> dict[str, int]:
    return {
        "vm": number,
        "sent_bytes": sent_bytes,
        "packets_sent": packets,
        "received_bytes": 1000,
        "packets_received": 10,
        "segments": 700,
        "resent": 7,
        "timeouts": 1,
    }


def ended(**detail: Any) -> events.Event:
    return events.JobEnded(9.0, "a", "finished", "", 2.0, detail)


def test_a_jobs_traffic_is_that_of_its_vms() -> None:
    event = ended(
        traffic=[vm(0, 1_000_000, 100), vm(1, 500_000, 400)],
        ranks=[{"took_s_raw": 1.5}, {"took_s_raw": 2.0}],
        rate_bps_raw=8_000_000,
    )
    found = job_traffic([event])["a"]
    assert found.sent_bytes == 1_500_000
    assert found.packet_bytes == 3000.0
    assert (found.segments, found.resent, found.timeouts) == (1400, 14, 2)
    # The busiest VM sent 691 frames, 591 of their headers not counted, of 2 MB.
    wire = 1_000_000 + 66 * (1_000_000 / 1448 - 100)
    assert found.use == pytest.approx(wire / 2_000_000)


def test_without_counters_there_is_no_traffic() -> None:
    assert job_traffic([ended(), events.RunEnded(9.0, "done", "")]) == {}


@pytest.mark.slow
def test_the_picture_is_of_programs_that_were_counted() -> None:
    counted = measured_scaling(repetitions(1.5, QUIET))
    pictures = reason_pictures(counted)
    assert pictures["svg"].startswith(b"<?xml")
    # The labels of packets' sizes are numbers.
    assert b"mathdefault" not in pictures["svg"]
    assert reason_pictures(measured_scaling(repetitions(1.0, None))) == {}


def test_thirteen_programs_look_unlike_each_other() -> None:
    looks = set()
    for number in range(13):
        looks.add((COLOURS[number % len(COLOURS)], marker(number)))
    assert len(looks) == 13


@pytest.mark.slow
def test_no_two_programs_of_a_picture_have_one_look() -> None:
    (scaling,) = measured_scaling(repetitions(1.0, None))
    looks = set()
    with file_figure(9.6, 4.0) as made:
        draw(made, [scaling] * (len(COLOURS) + 1))
        for points, *_ in made.axes[0].containers:
            looks.add((points.get_color(), points.get_marker()))
    assert len(looks) == len(COLOURS) + 1


def test_a_printed_latency_is_an_application_of_its_own(
    tmp_path: Path,
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "agent-serve-50.1.log").write_text("latency: 0.25 s\n")
    (logs / "agent-serve-50.2.log").write_text(
        "rank 2: latency: 0.5 s\nmean latency: 9 s\n"
    )
    (logs / "agent-serve-profile.1.log").write_text("latency: 0.2 s\n")
    rows = [
        serving("serve-profile", None),
        serving("serve-50", 50 * MBPS),
        serving("other-50", 50 * MBPS),
        replace(serving("alone", None), application=None),
    ]
    (found,) = repetitions_of(latency_rows(rows, tmp_path))
    assert found.application == "serve-latency"
    assert found.profiled_s == 0.2
    assert found.runs[50 * MBPS].time_s == 0.5


def test_a_latency_is_that_of_the_job_whose_log_it_is_in(
    tmp_path: Path,
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "agent-serve-5.0.log").write_text("latency: 0.25 s\n")
    (logs / "agent-serve-5.1:2.log").write_text("latency: 0.5 s\n")
    (logs / "agent-serve-5.5.0.log").write_text("latency: 9 s\n")
    (row,) = latency_rows([serving("serve-5", 5 * MBPS)], tmp_path)
    assert row.measured_s == 0.5


def serving(job_id: str, granted_bps: int | None) -> JobRow:
    return JobRow(
        job_id=job_id,
        policy="scripted",
        kind="program",
        submit_s=0.0,
        start_s=0.0,
        end_s=4.0,
        outcome="finished",
        reason="",
        n_vms=2,
        requested_bps=100 * MBPS,
        granted_bps=granted_bps,
        estimate_s=4.0,
        measured_s=4.0,
        deadline_s=None,
        met_deadline=None,
        preemptions=0,
        migrations=0,
        value=1.0,
        price=0.0,
        application=job_id.partition("-")[0],
        duration_s=4.0,
        ratio=1.0,
        job_class=None,
    )
