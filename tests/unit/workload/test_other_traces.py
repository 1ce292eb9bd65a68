"""Hadoop traces and lease workloads: what their readers take, and what they name."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, median

import pytest

from jobs.workload.lwf import LeaseRecord, read_lwf
from jobs.workload.swim import SwimJob, read_swim
from jobs.workload.traces import TraceErrors
from tests.unit.workload.traces import trace

OVERLONG = "1" * 5000  # more digits than Python turns into a number
SHOWN = f"'{'1' * 37}...'"


def written(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def problems(path: Path, read: object) -> list[str]:
    with pytest.raises(TraceErrors) as caught:
        read(path)  # type: ignore[operator]
    return [
        f"{p.line}:{p.column}: {p.message}" for p in caught.value.problems
    ]


# ------------------------------------------------------------------ Hadoop


def test_tasks_are_blocks_of_input_and_a_reducer_where_anything_is_shuffled() -> (
    None
):
    assert SwimJob("a", 0, 0, 0, 0, 1).tasks == 1
    assert SwimJob("a", 0, 64_000_000, 0, 9, 1).tasks == 1
    assert SwimJob("a", 0, 64_000_001, 1, 9, 1).tasks == 3


def test_wrong_lines_of_a_hadoop_trace_are_named(tmp_path: Path) -> None:
    good = "a\t5\t5\t1\t2\t3\n"
    bad = [
        (
            "b\t6\t1\t1\t2\n",
            "2:9: has 5 fields, not 6: the line is cut off",
        ),
        (
            "b\t6\t1\t-1\t2\t3\n",
            "2:7: field 4 (map input): '-1' is negative",
        ),
        (
            f"b\t6\t1\t{OVERLONG}\t2\t3\n",
            f"2:7: field 4 (map input): {SHOWN} is beyond what can be meant",
        ),
        (
            "b\tx\t1\t1\t2\t3\n",
            "2:3: field 2 (submit time): 'x' is not a whole number",
        ),
        (
            "b\t4\t1\t1\t2\t3\n",
            "2:3: field 2 (submit time): 4 s is before line 1's 5 s",
        ),
        (good, "2:1: field 1 (job): 'a' stands in line 1 too"),
        (
            "<xml>\n",
            "2:1: '<xml>' is no line of this format: 6 fields apart by tabs",
        ),
    ]
    for line, said in bad:
        path = written(tmp_path, good + line)
        assert problems(path, read_swim) == [said]
        assert [job.name for job in read_swim(path, lenient=True).jobs] == [
            "a"
        ]


def test_a_line_of_nothing_but_tabs_is_refused_at_once(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, "a\t5\t5\t1\t2\t3\n" + "\t1" * 200_000)
    (problem,) = problems(path, read_swim)
    assert problem.startswith("2:1: field 1 (job): '' is no name")


def test_the_facebook_sample_has_jobs_of_one_task_by_median_and_72_by_mean() -> (
    None
):
    jobs = read_swim(trace("FB-2009_samples_24_times_1hr_0.tsv.gz")).jobs
    tasks = [job.tasks for job in jobs]
    assert (len(jobs), median(tasks), round(mean(tasks))) == (5894, 1, 72)


# ------------------------------------------------------------------ leases

XML = """\
<?xml version="1.0"?>
<lease-workload name="x">
 <lease-requests>
  <lease-request arrival="00:00:10.50">
   <realduration time="00:10:00.00"/>
   <lease id="1" preemptible="true">
    <nodes><node-set numnodes="3">
     <res amount="200" type="CPU"/><res amount="512" type="Memory"/></node-set></nodes>
    <start/><duration time="01:00:00.00"/>
   </lease>
  </lease-request>
  <lease-request arrival="00:01:00.00">
   <lease id="2" preemptible="false">
    <nodes><node-set numnodes="1"><res amount="100" type="CPU"/></node-set></nodes>
    <start><exact time="26:00:00.00"/></start><duration time="00:07:30.00"/>
   </lease>
  </lease-request>
  <lease-request arrival="00:02:00.00">
   <lease id="3" preemptible="false">
    <nodes><node-set numnodes="1"><res amount="100" type="CPU"/></node-set></nodes>
    <start><now/></start><duration time="00:07:30.00"/>
   </lease>
  </lease-request>
 </lease-requests>
</lease-workload>
"""


def test_leases_in_xml(tmp_path: Path) -> None:
    assert read_lwf(written(tmp_path, XML)).jobs == (
        LeaseRecord(
            "lease-00001",
            "BE",
            10.5,
            None,
            3600.0,
            3,
            2,
            512,
            600.0,
            line=4,
        ),
        LeaseRecord(
            "lease-00002",
            "AR",
            60.0,
            93600.0,
            450.0,
            1,
            1,
            1024,
            None,
            line=12,
        ),
        LeaseRecord(
            "lease-00003",
            "IM",
            120.0,
            120.0,
            450.0,
            1,
            1,
            1024,
            None,
            line=18,
        ),
    )


def test_leases_of_one_line(tmp_path: Path) -> None:
    text = "0 86400 1886 1800 22 1 1024 0 'NONE.img' 600\n5 -1 60 60 2 4 512 0 x 600\n"
    assert read_lwf(written(tmp_path, text)).jobs == (
        LeaseRecord(
            "lease-00001",
            "AR",
            0.0,
            86400.0,
            1886.0,
            22,
            1,
            1024,
            1800.0,
            line=1,
        ),
        LeaseRecord(
            "lease-00002", "BE", 5.0, None, 60.0, 2, 4, 512, None, line=2
        ),
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "9 20 60 60 2 1 512 0 x",
            "2:22: has 9 fields, not 10: the line is cut off",
        ),
        (
            "9 20 0 60 2 1 512 0 x 1",
            "2:6: field 3 (duration): must be above 0",
        ),
        (
            "9 20 60 60 -2 1 512 0 x 1",
            "2:12: field 5 (nodes): -2 is negative",
        ),
        (
            "9 8 60 60 2 1 512 0 x 1",
            "2:3: field 2 (start): 8 s is before the arrival at 9 s",
        ),
        (
            "9 8.5 60 60 2 1 512 0 x 1",
            "2:3: field 2 (start): '8.5' is not a whole number",
        ),
        (
            f"9 20 {OVERLONG} 60 2 1 512 0 x 1",
            f"2:6: field 3 (duration): {SHOWN} is not a whole number",
        ),
        (
            "4 20 60 60 2 1 512 0 x 1",
            "2:1: arrival: 4 s is before line 1's 5 s",
        ),
        (
            "<lease/>",
            "2:1: '<lease/>' is no line of this format: 10 fields",
        ),
    ],
)
def test_wrong_lines_of_leases_are_named(
    tmp_path: Path, line: str, said: str
) -> None:
    path = written(tmp_path, f"5 20 60 60 2 1 512 0 x 600\n{line}\n")
    assert problems(path, read_lwf) == [said]
    assert len(read_lwf(path, lenient=True).jobs) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"00:00:10.50"', '"ten"', "4:3: lease-request arrival: 'ten' is no time as 01:30:00.00"),
        ('numnodes="3"', 'numnodes="0"', "7:12: node-set numnodes: '0' is no number above 0"),
        ('<duration time="01:00:00.00"/>', "", "4:3: duration time: is missing"),
        ('"26:00:00.00"', '"00:00:59.00"', "15:12: starts at 59 s, before it arrives at 60 s"),
        ('id="2"', f'id="{OVERLONG}"', f"13:4: lease id: {SHOWN} is too long for a number"),
        ('id="2"', 'id="1"', "12:3: lease 'lease-00001' stands in line 4 too"),
        ('"00:02:00.00"', '"00:00:30.00"', "18:1: arrival: 30 s is before line 12's 60 s"),
        ("</lease-workload>\n", "", "25:1: not XML: the file is cut off here"),
        ('<?xml version="1.0"?>', "<!DOCTYPE x [<!ENTITY a 'b'>]>",
         "1:13: a document type has no place in a lease workload"),
    ],
)  # fmt: skip
def test_wrong_leases_in_xml_are_named(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert XML.count(old) == 1
    assert problems(written(tmp_path, XML.replace(old, new)), read_lwf)[
        :1
    ] == [said]


def node_set(numnodes: int, cpu: int | None, memory: int | None) -> str:
    resources = ""
    if cpu is not None:
        resources += f'<res amount="{cpu}" type="CPU"/>'
    if memory is not None:
        resources += f'<res amount="{memory}" type="Memory"/>'
    return f'\n<node-set numnodes="{numnodes}">{resources}</node-set>'


def with_node_set(text: str) -> str:
    """XML, whose lease of three nodes has another node-set."""
    return XML.replace(
        "</node-set></nodes>", f"</node-set>{text}</nodes>", 1
    )


@pytest.mark.parametrize("cpu", [150, 200])
def test_node_sets_of_one_size_are_one_lease(
    tmp_path: Path, cpu: int
) -> None:
    text = with_node_set(node_set(2, cpu, 512) + node_set(4, cpu, 512))
    lease = read_lwf(written(tmp_path, text)).jobs[0]
    assert (lease.nodes, lease.cores, lease.memory_mb) == (9, 2, 512)


@pytest.mark.parametrize(
    ("cpu", "memory", "size"),
    [
        (100, 512, "1 cores and 512 MB"),
        (200, 2048, "2 cores and 2048 MB"),
        (None, None, "1 cores and 1024 MB"),
    ],
)
def test_a_lease_of_unlike_nodes_is_refused(
    tmp_path: Path, cpu: int | None, memory: int | None, size: str
) -> None:
    path = written(tmp_path, with_node_set(node_set(1, cpu, memory)))
    (problem,) = problems(path, read_lwf)
    assert problem == (
        f"9:1: node-set: its nodes have {size}, those of line 7 have 2 cores"
        " and 512 MB: all nodes of a lease are alike here; ask for them in a"
        " lease of their own"
    )
    assert len(read_lwf(path, lenient=True).jobs) == 2


@pytest.mark.parametrize(
    "encoding", ["nonsense", "gbk", "idna", "base64", "utf-16"]
)
def test_leases_in_an_encoding_that_nobody_reads_are_named(
    encoding: str, tmp_path: Path
) -> None:
    path = written(
        tmp_path,
        f"<?xml version='1.0' encoding='{encoding}'?><lease-workload/>",
    )
    assert any(": not XML: " in text for text in problems(path, read_lwf))


@pytest.mark.parametrize(
    ("name", "leases", "kind"),
    [
        ("inj1.lwf", 13, "AR"),
        ("withprematureend.lwf", 139, "BE"),
        ("work_05-dur_1h-size_1small.lwf", 207, "AR"),
    ],
)
def test_published_leases(name: str, leases: int, kind: str) -> None:
    read = read_lwf(trace(f"haizea/{name}")).jobs
    assert (len(read), {lease.kind for lease in read}) == (leases, {kind})
