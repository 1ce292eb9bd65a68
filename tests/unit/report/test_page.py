"""The page is whole, self-contained, escaped, and says what the run's files say."""

from __future__ import annotations

import json
import os
import re
import weakref
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import pytest

from testbed import events
from testbed.audit import audit
from testbed.cli.main import run
from testbed.errors import BadInput
from testbed.expectations import Expectation
from testbed.record.conclusion import conclude_all
from testbed.record.event_file import event_from_json, paused_collection
from testbed.record.folder import RunFolder
from testbed.record.provenance import provenance
from testbed.record.reading import read_recording
from testbed.report.page import write_report
from tests.unit.record import sample
from tests.unit.record.written import FIG10, NOW, mutate, one, write_run

VOID = {"meta", "br", "img", "link", "input", "hr", "path", "use", "rect"}
EVIL = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Balanced tags, ids, references, text by element; raises on what does not nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "action", "data"):
                self.references.append(value or "")
            assert not name.startswith("on"), (tag, name)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(
        self, tag: str, attrs: list[tuple[str, str | None]]
    ) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, tag
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(
            t
            for tag, ts in self.texts.items()
            if tag != "style"
            for t in ts
        )


def report(
    tmp_path: Path,
    stream: list[events.Event],
    expect: Expectation | None = None,
) -> tuple[Page, str, RunFolder]:
    folder, _ = write_run(tmp_path, stream, expect)
    folder.write_text("spec.yaml", f"name: x # {EVIL}\n")
    path = write_report(folder)
    assert path == folder.path / "report.html"
    text = path.read_text(encoding="utf-8")
    return Page(text), text, folder


@pytest.fixture(scope="module")
def good(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Page, str, RunFolder]:
    return report(
        tmp_path_factory.mktemp("good"), sample.main_example(), FIG10
    )


@pytest.mark.slow
def test_the_verdict_comes_first(good: tuple[Page, str, RunFolder]) -> None:
    page, text, _ = good
    assert 'class="verdict good"' in text
    message = (
        "All 10 jobs kept to what the file expects (measured/estimate"
        " sort 0.98–1.01, index at most 1.01 and below 0.97 when scaled"
        " down)."
    )
    assert message in page.text
    assert text.index(message) < text.index("<svg")


def test_the_table_holds_every_job(
    good: tuple[Page, str, RunFolder],
) -> None:
    page, _, folder = good
    stored = json.loads(
        (folder.path / "summary.json").read_text(encoding="utf-8")
    )
    rows = stored["expectations"]["rows"]
    assert len(rows) == 10
    cells = page.texts["td"]
    for row in rows:
        assert row["job_id"] in cells
        assert f"{row['ratio']:.4f}" in cells
        assert f"{row['measured_s']:.2f} s" in cells


def test_the_pictures_are_there_and_described(
    good: tuple[Page, str, RunFolder],
) -> None:
    page, text, _ = good
    assert (
        text.count('<figure tabindex="0">')
        == text.count("<figcaption>")
        == 4
    )
    for heading in (
        "Bandwidth scaling: measured against estimated time",
        "The jobs over time",
        "The servers over time",
        "Reserved and sent on the links",
    ):
        assert heading in page.texts["h2"]
    (alt, jobs, servers, links) = re.findall(
        r'<span class="alt">(.*?)</span>', text, re.DOTALL
    )
    assert "sort: 3.99 s of 4.00 s estimated at 750 Mbit/s" in alt
    assert "sort-150 was submitted at" in jobs
    assert "server 0 had VMs of 5 jobs, in 1 VM slot" in servers
    assert (
        "server 0 → rack 0 and 17 more alike: at most 750 of 1000 Mbit/s reserved"
        in links
    )
    assert "at most 7" in links.split("sent.")[0]


@pytest.mark.slow
def test_figure_ten_plots_every_measured_point(
    good: tuple[Page, str, RunFolder],
) -> None:
    _, text, _ = good
    drawing = text[text.index('id="scaling-') : text.index('id="gantt-')]
    uses = re.findall(r'<use [^>]*style="fill: ([^;"]+)[^"]*"', drawing)
    # Five points a picture, above and below; sort's are filled, index's are hollow.
    assert uses.count("var(--series-1)") >= 10
    assert drawing.count("var(--series-2)") >= 10
    assert "estimate p·b/b&#x27;" in drawing or "estimate p·b/b'" in drawing
    assert "expected 0.98–1.01" in drawing


@pytest.mark.slow
def test_nothing_is_fetched(good: tuple[Page, str, RunFolder]) -> None:
    page, text, folder = good
    assert "script" not in page.tags
    assert "default-src 'none'" in text
    for reference in page.references:
        inside = reference.startswith("#") and reference[1:] in page.ids
        local = (
            not re.match(r"[a-z]+:|//", reference)
            and (folder.path / reference).is_file()
        )
        assert (
            inside
            or local
            or reference.startswith("data:image/png;base64,")
        ), reference
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text


def test_ids_are_unique_and_every_reference_is_met(
    good: tuple[Page, str, RunFolder],
) -> None:
    page, text, _ = good
    assert len(set(page.ids)) == len(page.ids)
    for target in re.findall(r"url\(#([^)]+)\)", text):
        assert target in page.ids


def test_pictures_take_the_pages_colours(
    good: tuple[Page, str, RunFolder],
) -> None:
    _, text, _ = good
    assert "#0101" not in text
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", text))
    defined = set(re.findall(r"(--[a-z0-9-]+):", text))
    assert used <= defined
    dark = text[
        text.index("prefers-color-scheme: dark") : text.index(
            "* { box-sizing"
        )
    ]
    assert defined == set(re.findall(r"(--[a-z0-9-]+):", dark))


@pytest.mark.slow
def test_the_same_folder_gives_the_same_page(
    good: tuple[Page, str, RunFolder],
) -> None:
    _, text, folder = good
    assert write_report(folder).read_text(encoding="utf-8") == text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_provenance_and_how_to_run_it_again(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    folder.write_text("spec.yaml", "name: x\n")
    folder.write_text("logs/agent & co.log", "")
    resolved = {
        "expect": {},
        "overrides": {"scale.rate": "0.05"},
        "scale": {"rate": 0.05},
    }
    folder.write_json("spec.resolved.json", resolved)
    extra = {
        "userspace_tso": True,
        "vm_sysctls": {},
        "controller": {"library": "ryu"},
    }
    command = ["testbed", "run", "a file.yaml"]
    record = provenance(
        seeds={"seed": 7}, command=command, backend="live", extra=extra
    )
    record["code"] = {
        "hosenet": None,
        "commit": "0123456789abcdef",
        "dirty": True,
    }
    folder.write_json("provenance.json", record)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert (
        "sudo testbed run spec.yaml --seed 7 --set scale.rate=0.05"
        in page.texts["code"]
    )
    assert "testbed run 'a file.yaml'" in page.texts["code"]
    known = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert known["Code"] == "0123456789ab with uncommitted changes"
    assert known["Userspace TSO"] == "yes"
    assert known["VM sysctls"] == "none"
    assert known["Controller"] == "library: ryu"
    assert known["Congestion control (jobs)"] == "cubic"
    assert known["Scale"] == "rate: 0.05"
    assert "logs/agent%20%26%20co.log" in page.references


# ------------------------------------------------------------------------------ bad news


@pytest.mark.slow
def test_a_job_outside_is_named_and_circled(tmp_path: Path) -> None:
    page, text, _ = report(
        tmp_path, sample.main_example(worst_ratio=1.043), FIG10
    )
    assert 'class="verdict bad"' in text
    assert "1 of 10 jobs was outside what was expected." in page.text
    assert (
        "sort-150: measured/estimate 1.0430, expected 0.98–1.01"
        in page.texts["li"]
    )
    drawing = text[text.index('id="scaling-') : text.index('id="gantt-')]
    assert "stroke: var(--bad)" in drawing


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_failed_audit_is_reported(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)

    def lie(records: list[dict[str, object]]) -> None:
        one(records, "job_reserved", "sort-450")["estimate_s"] = 1.0

    mutate(folder.path, lie)
    text = write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert 'class="verdict bad"' in text
    assert "The audit found violations (estimates" in page.text
    assert any(
        re.match(r"events\.jsonl:\d+: sort-450: estimate 1 s", t)
        for t in page.texts["code"]
    )


@pytest.mark.slow
def test_a_killed_run_still_has_a_page(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example())
    for name in ("jobs.csv", "links.csv", "summary.json"):
        (folder.path / name).unlink()
    file = folder.path / "events.jsonl"
    file.write_bytes(file.read_bytes()[:-9000])
    folder.write_json("spec.resolved.json", {"expect": asdict(FIG10)})
    text = write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert 'class="verdict bad"' in text
    assert "The run was interrupted" in page.text
    assert "no measured time: unfinished" in page.text


# ------------------------------------------------------------------------------ hostile names


@pytest.mark.slow
def test_names_from_files_are_only_text(tmp_path: Path) -> None:
    stream = sample.main_example(labels=(EVIL, 'a & "b" $x^2$ {{ 7*7 }}'))
    page, text, _ = report(tmp_path, stream)
    assert "script" not in page.tags
    assert EVIL not in text
    assert EVIL in page.texts["td"]
    assert 'a & "b" $x^2$ {{ 7*7 }}' in page.texts["td"]
    # In the pictures too, and in the experiment file shown below.
    assert any(
        EVIL in t
        for tag in ("text", "tspan")
        for t in page.texts.get(tag, [])
    )
    assert f"name: x # {EVIL}" in page.text


@pytest.mark.slow
def test_a_job_called_markup_is_only_text(tmp_path: Path) -> None:
    renamed = [_rename(event) for event in sample.sliding()]
    page, text, _ = report(tmp_path, renamed)
    assert "img" not in page.tags
    assert EVIL not in text


def test_a_file_whose_name_is_no_utf_8_has_a_link(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.sliding())
    Path(os.fsdecode(os.fsencode(folder.path) + b"/\xff.log")).touch()
    page = Page(write_report(folder).read_text("utf-8"))
    assert "%FF.log" in page.references
    assert r"\udcff.log" in page.text


def _rename(event: events.Event) -> events.Event:
    record = event.to_json()
    if "job" in record:
        record["job"] = {
            **record["job"],
            "id": f"<img src=x>{EVIL}{record['job']['id']}",
        }
    if "job_id" in record:
        record["job_id"] = f"<img src=x>{EVIL}{record['job_id']}"
    if record.get("reason"):
        record["reason"] = EVIL
    return event_from_json(record)


# ------------------------------------------------------------------------------ other runs


@pytest.mark.slow
def test_a_simulated_run_has_no_measured_line(tmp_path: Path) -> None:
    page, text, _ = report(
        tmp_path, sample.main_example(backend="sim", samples=False), FIG10
    )
    assert "sent (measured)" not in page.text
    assert "nothing was measured" in page.text
    assert 'id="gantt-' in text
    assert "simulated" in page.texts["span"]


@pytest.mark.slow
def test_many_jobs_become_an_occupancy(tmp_path: Path) -> None:
    page, text, folder = report(tmp_path, sample.simulated(320))
    assert 'id="occupancy-' in text
    assert 'id="gantt-' not in text
    assert 'id="heat-' in text
    assert "320 jobs" in page.text
    assert "120 more jobs are in jobs.csv" in page.text
    assert len(text) < 2_000_000
    assert folder.path.is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(
    "stream",
    [
        sample.preempting(),
        sample.sliding(),
        sample.flat(),
        sample.flat()[:1],
        sample.sliding()[:3],
    ],
    ids=["preempting", "sliding", "flat", "empty", "only-booked"],
)
def test_every_kind_of_run_has_a_page(
    tmp_path: Path, stream: list[events.Event]
) -> None:
    page, text, _ = report(tmp_path, stream)
    assert len(set(page.ids)) == len(page.ids)
    assert ("The jobs over time" in page.text) == (len(stream) > 1)
    assert "nan" not in re.findall(r'd="([^"]*)"', text)


@pytest.mark.slow
def test_several_policies_get_a_page_each_and_one_above(
    tmp_path: Path,
) -> None:
    above = RunFolder.create(tmp_path, "two", 7, now=NOW)
    results = []
    for label in ("scripted", "vc & more"):
        _, result = write_run(
            above, sample.main_example(), FIG10, name=label
        )
        results.append(result)
    conclude_all(above, results)
    path = write_report(above)
    page = Page(path.read_text(encoding="utf-8"))
    assert path == above.path / "report.html"
    pages = []
    for reference in page.references:
        if reference.startswith("#"):
            assert reference[1:] in page.ids
        else:
            pages.append(reference)
    assert len(pages) == 2
    for reference in pages:
        assert (above.path / reference).is_file()
    assert page.texts["td"].count("good") == 2


@pytest.mark.usefixtures("undrawn")
def test_a_written_page_keeps_no_events_in_memory(tmp_path: Path) -> None:
    folder = write_run(tmp_path, sample.main_example(), FIG10)[0]
    with paused_collection():
        recording = read_recording(folder.path)
        kept = weakref.ref(recording)
        checked = audit(folder.path, recording)
        write_report(folder, checked, recording)
        del recording
        assert kept() is None


def test_a_folder_without_a_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a run folder"):
        write_report(RunFolder.open(tmp_path))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_rejections_are_summed_up_by_their_reasons(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    jobs = []
    for number in range(5):
        jobs.append(
            f"{{id: j{number}, at: {number} s, vms: {4 - number % 2},"
            " bandwidth: 9 Mbit/s, duration: 90 s}"
        )
    path.write_text(
        "name: full\npolicies: [vc]\n"
        "topology: {kind: tree, fanout: [2], links: 1 Gbit/s,"
        " slots_per_server: 2}\n"
        f"workload: {{kind: jobs, jobs: [{', '.join(jobs)}]}}\n"
    )
    assert run(["simulate", str(path), "--out", f"{tmp_path}/runs"]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    page = (folder / "report.html").read_text("utf-8")
    assert "Why jobs were rejected" in page
    assert '<td class="number">4</td><td class="text">' in page
    assert "… asked" in page
