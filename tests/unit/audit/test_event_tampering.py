"""Every field of every event changed after the run, one at a time: the audit notices.

What it does not notice is listed in :data:`UNSEEN` with the reason, and in
docs/runs-and-fidelity.md.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import events
from testbed.audit import audit
from testbed.errors import BadInput
from testbed.record.reading import load_run
from tests.unit.audit.test_audit_tampering import at, places
from tests.unit.record import failing, sample
from tests.unit.record.written import Record, mutate, one, write_run

WORDS = "words, as long as there are some"
LONGER = "a booking may be longer than the job stays, where there is room"
POLICY = "what the policy knew: nothing follows from it"
MOMENT = "any moment between those of the lines beside it"
UNREAD = "nothing reads it"

UNSEEN = {
    "run_started.topology.kind": UNREAD,
    "run_started.topology.level": UNREAD,
    "run_started.topology.level[]": UNREAD,
    "run_started.topology.names[]": "labels, where the experiment gives no names",
    "job_waits.t": MOMENT,
    "job_waits.reason": WORDS,
    "job_waits.behind": POLICY,
    "job_waits.behind[]": POLICY,
    "job_waits.until_s": POLICY,
    "job_reserved.t": MOMENT,
    "job_reserved.end_s": LONGER,
    "job_migrated.end_s": LONGER,
    "job_resumed.end_s": LONGER,
    "job_shortened.until_s": LONGER,
    "job_shortened.reason": WORDS,
    "job_preempted.reason": WORDS,
    "job_migrated.reason": WORDS,
    "job_migrated.cost_s": "a restored job's progress is not replayed",
    "job_resumed.cost_s": "a restored job's progress is not replayed",
    "job_progress.received_bytes": "progress is not replayed",
    "job_progress.share": "progress is not replayed",
    "job_rerooted.reason": WORDS,
    "job_cut.reason": WORDS,
    "job_requeued.reason": WORDS,
    "job_ended.detail.payload_bytes": "raw metrics, but for price and iperf3",
    "job_ended.detail.congestion_control": "raw metrics, but for price and iperf3",
    "job_ended.detail.congestion_control[]": "raw metrics, but for price and iperf3",
    "fidelity_noted.check": WORDS,
    "fidelity_noted.reason": "the words of a note that is ok",
    "fidelity_noted.figures.load": "a level is not derived again from its figures",
    "fidelity_noted.figures.p10": "a level is not derived again from its figures",
}
"""Fields that may be changed unseen in some line, and why."""

KINDS_OF_RECORD = 2
"""Records of a kind, in each stream, that are changed."""


STREAMS: dict[str, Callable[[], list[events.Event]]] = {
    "live": sample.eventful,
    "preempting": sample.preempting,
    "tiers": sample.two_tiers,
    "later": sample.sliding,
    "leases": sample.leases,
    "moving": failing.moving,
    "anew": failing.anew,
}


def lies(value: Any) -> list[Any]:
    """Other contents of a field."""
    match value:
        case bool():
            out: list[Any] = [not value]
        case int() | float():
            out = [value * 2 + 1, -1, -2]
        case str():
            out = [f"{value}x", "nonsense", ""]
        case None:
            out = [1.0, 1e6]
        case list():
            out = [value[:-1], [*value, *value[:1]]] if value else [["x"]]
        case _:
            out = []
    return [lie for lie in out if lie != value]


def name_of(record: Record, path: tuple[Any, ...]) -> str:
    """``link_sample.links[][1]``: a field; of pairs and triples which of their values."""
    out, depth = str(record["event"]), 0
    for key in path:
        depth = depth + 1 if isinstance(key, int) else 0
        out += (
            f".{key}" if not depth else "[]" if depth == 1 else f"[{key}]"
        )
    return out


def changes(
    records: list[Record],
) -> Iterator[tuple[str, int, tuple[Any, ...], Any]]:
    """Each field of some records of each kind, where it is and what it could say instead."""
    kinds: Counter[str] = Counter()
    for number, record in enumerate(records):
        kinds[record["event"]] += 1
        if kinds[record["event"]] > KINDS_OF_RECORD:
            continue
        tried: Counter[str] = Counter()
        for path in places(
            {key: record[key] for key in record if key != "event"}
        ):
            name = name_of(record, path)
            tried[name] += 1
            if tried[name] <= KINDS_OF_RECORD:
                yield from (
                    (name, number, path, lie)
                    for lie in lies(at(record, path))
                )


def is_seen(path: Path) -> bool:
    """True if the audit of a run finds anything, or cannot read it."""
    try:
        return not audit(path).passed
    except BadInput:
        return True


@pytest.mark.short("preempting", "later")
@pytest.mark.slow
@pytest.mark.parametrize("stream", STREAMS)
def test_every_field_of_every_event_is_seen_or_listed(
    stream: str, tmp_path: Path
) -> None:
    folder, _ = write_run(tmp_path, STREAMS[stream]())
    file = folder.path / "events.jsonl"
    records = [
        json.loads(line)
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    assert not is_seen(folder.path), audit(folder.path)
    unseen = set()
    for name, number, path, lie in changes(records):
        changed = copy.deepcopy(records)
        at(changed[number], path[:-1])[path[-1]] = lie
        file.write_text(
            "".join(json.dumps(r) + "\n" for r in changed), encoding="utf-8"
        )
        if not is_seen(folder.path):
            unseen.add(name)
    assert unseen <= set(UNSEEN), sorted(unseen - set(UNSEEN))


def test_the_streams_hold_every_kind_of_event() -> None:
    kinds = {
        event.name for stream in STREAMS.values() for event in stream()
    }
    assert kinds == set(events.EVENTS)


def test_the_page_lists_what_is_not_seen() -> None:
    page = Path(__file__).parents[3] / "docs" / "runs-and-fidelity.md"
    text = page.read_text(encoding="utf-8").partition(
        "### What is not checked"
    )[2]
    for name in UNSEEN:
        kind, field, *_ = (
            name.replace("topology.", "").replace("[]", "").split(".")
        )
        assert f"`{kind}`" in text, kind
        assert f"`{field}`" in text, field


# ------------------------------------------------------------------ files that are not there


def _folder(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _gone(path: Path) -> None:
    del path


@pytest.mark.parametrize("make", [_gone, _folder, _fifo, _endless])
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("jobs.csv", "jobs.csv"),
        ("links.csv", "links.csv"),
        ("summary.json", "summary"),
        ("spec.resolved.json", "experiment"),
    ],
)
def test_a_completed_run_has_its_files(
    name: str, check: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())
    (folder.path / name).unlink()
    make(folder.path / name)
    failed = {
        one.name: one.findings
        for one in audit(folder.path).results
        if one.findings
    }
    assert check in failed
    wanted = "is missing" if make is _gone else "not a regular file"
    assert wanted in failed[check][0].message
    assert failed[check][0].file == name


@pytest.mark.parametrize(
    "name", ["provenance.json", "summary.json", "spec.resolved.json"]
)
def test_no_command_waits_for_a_file_that_never_ends(
    name: str, tmp_path: Path
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())
    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    with pytest.raises(BadInput, match="not a regular file"):
        load_run(folder.path)


def test_the_list_above_several_policies_is_no_fifo(tmp_path: Path) -> None:
    from testbed.audit import audit_all

    above, _ = write_run(tmp_path, sample.sliding())
    inner = above.path / "vc"
    inner.mkdir()
    for file in list(above.path.iterdir()):
        if file.is_file():
            shutil.move(file, inner / file.name)
    os.mkfifo(above.path / "summary.json")
    assert not audit_all(above.path)[-1].passed


def test_a_run_that_was_killed_has_no_tables(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())
    mutate(folder.path, lambda records: records.pop())
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (folder.path / name).unlink()
    status = {one.name: one.status for one in audit(folder.path).results}
    assert {
        status[name] for name in ("jobs.csv", "links.csv", "summary")
    } == {"not applicable"}
    assert status["stream"] == "failed"


# ------------------------------------------------------------------ tiers and the data centre


def _a_tier_of_its_own(records: list[Record]) -> None:
    one(records, "job_started", "early")["tier"] = "nonsense"


def _another_tier(records: list[Record]) -> None:
    one(records, "job_started", "early")["tier"] = "background"


@pytest.mark.parametrize("lie", [_a_tier_of_its_own, _another_tier])
def test_a_job_starts_in_the_tier_that_it_was_reserved_in(
    lie: Callable[[list[Record]], None], tmp_path: Path
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())
    mutate(folder.path, lie)
    failed = {
        one.name: one.findings
        for one in audit(folder.path).results
        if one.findings
    }
    assert (
        "tier" in failed["lives"][0].message
        or "background" in failed["lives"][0].message
    )


@pytest.mark.parametrize(
    "key", ["slots", "memory_mib", "capacity_bps", "lower", "upper"]
)
def test_the_data_centre_is_the_one_that_was_declared(
    key: str, tmp_path: Path
) -> None:
    stream = sample.leases() if key == "memory_mib" else sample.sliding()
    folder, _ = write_run(tmp_path, stream)

    def lie(records: list[Record]) -> None:
        topology = records[0]["topology"]
        values = (
            topology[key] if key in topology else topology["links"][key]
        )
        values[0] += 1 << 10

    mutate(folder.path, lie)
    results = {one.name: one.findings for one in audit(folder.path).results}
    shown = [finding.message for finding in results.get("experiment", ())]
    # Ends that do not exist leave nothing else to be checked.
    shown += [finding.message for finding in results["topology"]]
    assert shown


@pytest.mark.parametrize("key", ["parent", "uplink"])
def test_trees_are_read_from_their_roots_or_from_their_nodes(
    key: str, tmp_path: Path
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())

    def roots_alone(records: list[Record]) -> None:
        for tree in records[0]["topology"]["trees"]:
            del tree["parent"], tree["uplink"]

    def half(records: list[Record]) -> None:
        records[0]["topology"]["trees"][0] |= {key: [2, 2, -1]}

    assert audit(folder.path).passed
    mutate(folder.path, roots_alone)
    assert audit(folder.path).passed
    mutate(folder.path, half)
    assert not audit(folder.path).passed


def test_servers_that_links_reach_in_two_ways_are_below_no_root(
    tmp_path: Path,
) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())

    def second_way(records: list[Record]) -> None:
        topology = records[0]["topology"]
        for tree in topology["trees"]:
            del tree["parent"], tree["uplink"]
        for name, value in (
            ("lower", 0),
            ("upper", 2),
            ("capacity_bps", sample.GBIT),
        ):
            topology["links"][name].append(value)

    mutate(folder.path, second_way)
    failed = {
        one.name for one in audit(folder.path).results if one.findings
    }
    assert "placements" in failed
