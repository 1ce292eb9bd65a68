"""Batsim's workloads and Alibaba's tasks as jobs: times, bytes and what is left
out, by hand.
"""

from __future__ import annotations

import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import BadInput
from testbed.importing.imported import Imported, Job, RegularTree
from testbed.importing.recognition import import_files
from testbed.spec.experiment_file import parse_experiment

Import = Callable[..., Imported]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Imports contents; what comes is an experiment."""

    def take(*contents: Any, **options: Any) -> Imported:
        paths = []
        for number, content in enumerate(contents):
            path = tmp_path / f"file-{number}"
            if isinstance(content, dict):
                path.write_text(json.dumps(content))
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content)
            paths.append(path)
        result = import_files(paths, **options)
        parse_experiment(result.text(), tmp_path / "made.yaml")
        return result

    return take


def refused(take: Import, *contents: Any, **options: Any) -> str:
    with pytest.raises(BadInput) as caught:
        take(*contents, **options)
    assert "\n" not in caught.value.message
    return caught.value.message


# ------------------------------------------------------------------ Batsim

HOMOGENEOUS = {"type": "parallel_homogeneous", "cpu": 1e10, "com": 1e6}


def workload(
    profile: Any, res: int = 4, nb_res: int = 8, **more: Any
) -> dict[str, Any]:
    job = {"id": 1, "subtime": 2.5, "res": res, "profile": "p", **more}
    profiles = {"p": profile, "homogeneous": HOMOGENEOUS}
    return {"nb_res": nb_res, "jobs": [job], "profiles": profiles}


def job_of(result: Imported) -> Job:
    (job,) = result.jobs
    return job


@pytest.mark.parametrize(
    ("profile", "duration_s", "sent_bytes"),
    [
        ({"type": "delay", "delay": 20.2}, 20.2, 0),
        (HOMOGENEOUS, 10, 3e6),
        ({**HOMOGENEOUS, "type": "msg_par_hg"}, 10, 3e6),
        # The bytes need longer than the computing, at 1 Gbit/s.
        ({**HOMOGENEOUS, "com": 1e9}, 24, 3e9),
        ({**HOMOGENEOUS, "com": 0}, 10, 0),
        ({**HOMOGENEOUS, "cpu": 0}, 0.024, 3e6),
        ({**HOMOGENEOUS, "type": "parallel_homogeneous_total"}, 2.5, 75e4),
        ({**HOMOGENEOUS, "type": "msg_par_hg_tot"}, 2.5, 75e4),
        (
            {"type": "composed", "repeat": 3, "seq": ["homogeneous"] * 2},
            60,
            18e6,
        ),
        ({"type": "composed", "nb": 2, "seq": ["homogeneous"]}, 20, 6e6),
    ],
)
def test_profiles_take_the_longer_of_computing_and_sending(
    profile: Any, duration_s: float, sent_bytes: float, imported: Import
) -> None:
    job = job_of(imported(workload(profile)))
    assert job.duration_s == pytest.approx(duration_s)
    sent = job.bandwidth_bps * job.duration_s / 8
    assert sent == pytest.approx(sent_bytes, rel=1e-6, abs=2)
    assert (job.at_s, job.vms) == (2.5, 4)


def test_the_parts_of_a_sequence_take_their_times_together(
    imported: Import,
) -> None:
    """A part that waits and one that sends do not overlap: 20 s and 20 s."""
    content = workload({"type": "composed", "seq": ["wait", "send"]}, res=2)
    content["profiles"] |= {
        "wait": {"type": "delay", "delay": 20},
        "send": {"type": "parallel_homogeneous", "cpu": 0, "com": 2.5e9},
    }
    (job,) = imported(content).jobs
    assert job.duration_s == pytest.approx(40)
    assert job.bandwidth_bps == pytest.approx(5e8)


def test_no_rounding_asks_for_more_than_the_link(imported: Import) -> None:
    """1.15e9 bits over 1.15 s, as floats, are a little more than 1 Gbit/s."""
    profile = {"type": "parallel_homogeneous", "cpu": 0, "com": 143_750_000}
    (job,) = imported(workload(profile, res=2)).jobs
    assert job.bandwidth_bps == 10**9


@pytest.mark.parametrize("kind", ["parallel", "msg_par"])
def test_of_a_matrix_the_vm_that_sends_or_receives_most_counts(
    kind: str, imported: Import
) -> None:
    profile = {
        "type": kind,
        "cpu": [1e9, 4e9, 0],
        "com": [9e9, 1e6, 2e6, 0, 0, 5e6, 0, 0, 0],
    }
    job = job_of(imported(workload(profile, res=3)))
    assert job.duration_s == 4
    # The third receives 7 MB; what a VM sends itself does not count.
    assert job.bandwidth_bps == 14_000_000


@pytest.mark.parametrize(
    "profile",
    [
        {"type": "smpi", "trace": "x.txt"},
        {"type": "usage_trace", "trace": "x.txt"},
        {"type": "parallel_homogeneous_pfs", "bytes_to_read": 1},
        {"type": "parallel", "cpu": [1, 2], "com": []},
        {"type": "parallel", "cpu": [1, 2, 3, None]},
        {"type": "composed", "seq": ["p", "p"]},
        {"type": "composed", "seq": 7},
        {"type": "delay", "delay": "long"},
        {"type": "delay", "delay": -1},
        {"type": "delay", "delay": 10**400},
        {"type": ["x"]},
        "no mapping",
    ],
)
def test_jobs_of_other_profiles_take_their_walltime(
    profile: Any, imported: Import
) -> None:
    result = imported(workload(profile, walltime=77))
    assert job_of(result).duration_s == 77
    assert "# its walltime" in result.text()
    said = "\n".join(result.notes.not_taken)
    assert "jobs that take their walltime, of profiles" in said
    assert "no job that can be run" in refused(imported, workload(profile))


def test_profiles_of_profiles_are_read_once(imported: Import) -> None:
    profiles: dict[str, Any] = {"p0": {"type": "delay", "delay": 1e-9}}
    for number in range(1, 30):
        for side in ("p", "q"):
            parts = [f"p{number - 1}", f"q{number - 1}"]
            if number == 1:
                parts = ["p0", "p0"]
            profiles[f"{side}{number}"] = {"type": "composed", "seq": parts}
    jobs = [{"id": 1, "subtime": 0, "res": 1, "profile": "p29"}]
    data = {"nb_res": 1, "jobs": jobs, "profiles": profiles}
    assert job_of(imported(data)).duration_s == pytest.approx(0.536870912)


def test_jobs_that_cannot_be_run_here_are_counted(imported: Import) -> None:
    data = workload(HOMOGENEOUS)
    good = data["jobs"][0]
    data["jobs"] += [
        {**good, "id": "w0!1", "subtime": 1},
        {**good, "res": 9},
        {**good, "res": 0},
        {**good, "subtime": -1},
        {**good, "subtime": 1e300},
        7,
    ]
    result = imported(data)
    assert [job.name for job in result.jobs] == ["w0-1", "1"]
    said = "\n".join(result.notes.not_taken)
    assert "jobs that ask for more than 8 hosts: 1" in said
    assert (
        "jobs without a whole res above 0 or a subtime from 0 on: 3" in said
    )
    assert "jobs without a time from 1 us to 100 years: 1" in said


def test_a_platform_gives_speed_and_links(imported: Import) -> None:
    platform = (
        '<platform version="4.1"><cluster id="c" prefix="a" suffix=""'
        ' radical="0-3" speed="4Gf" bw="1MBps" lat="1us"/></platform>'
    )
    for files in (
        (platform, workload(HOMOGENEOUS)),
        (workload(HOMOGENEOUS), platform),
    ):
        job = job_of(imported(*files))
        assert job.duration_s == 3
        assert job.bandwidth_bps == 8_000_000


def test_a_workload_alone_gets_a_star(imported: Import) -> None:
    result = imported(workload(HOMOGENEOUS))
    assert result.topology == RegularTree(fanout=(8,), slots_per_server=1)
    assert "1 Gflop/s" in result.notes.choices[0]
    data = workload(HOMOGENEOUS)
    del data["nb_res"]
    assert imported(data).topology == RegularTree(
        fanout=(4,), slots_per_server=1
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON"),
        ("{'jobs': []}", "no JSON"),
        (
            '{"jobs": [], "profiles": {}, "nb_res": 0}',
            "nb_res is no number",
        ),
        ('{"jobs": [], "profiles": {}, "nb_res": 1}', "no job that can"),
        ('{"a": ' * 5000, "nested too deeply"),
        ('{"jobs": [' + "1" * 5000 + "]}", "no JSON"),
    ],
)
def test_what_is_no_workload_is_told(
    content: str, said: str, imported: Import
) -> None:
    assert said in refused(imported, content)


def test_a_workload_without_a_job_says_why_each_is_left_out(
    imported: Import,
) -> None:
    content = workload({"type": "delay", "delay": 0}, subtime=-1)
    content["jobs"] += workload({"type": "delay", "delay": 0})["jobs"]
    message = refused(imported, content)
    assert message.endswith(
        ": has no job that can be run here (jobs without a whole res above 0 or"
        " a subtime from 0 on: 1; jobs without a time from 1 us to 100 years:"
        " 1)"
    )


def test_two_networks_are_not_imported_together(imported: Import) -> None:
    data = workload(HOMOGENEOUS)
    assert "no network and its workload" in refused(imported, data, data)


# ------------------------------------------------------------------ Alibaba

TASKS = """\
M1,1,j_1,1,Terminated,86400,86410,100.0,0.3
R2_1,3,j_1,1,Terminated,86410,86450,100.0,0.3
M3,4,j_1,1,Terminated,86410,86420,100.0,0.3
J4_2_3,2,j_1,1,Terminated,86450,86450,100.0,0.3
task_Nzg3ODAw==,5,j_2,12,Terminated,86390,86500,50,0.1
M1,2,j_3,1,Failed,86390,86500,50,0.1
M1,2,j_4,1,Terminated,86390,,50,
M1,2,j_6,1,Terminated,0,86390,50,
M1,20000,j_5,1,Terminated,86390,86500,50,0.1
"""


def test_tasks_are_jobs_of_their_instances(imported: Import) -> None:
    result = imported(bz2.compress(TASKS.encode("utf-8-sig")))
    fields = [
        (job.name, job.at_s, job.vms, job.duration_s, job.after)
        for job in result.jobs
    ]
    assert fields == [
        ("j_2-task_Nzg3ODAw-", 0, 5, 110, ""),
        ("j_1-M1", 10, 1, 10, ""),
        ("j_1-R2_1", 20, 3, 40, "j_1-M1"),
        ("j_1-M3", 20, 4, 10, ""),
        # It waited longest for the second.
        ("j_1-J4_2_3", 60, 2, 1, "j_1-R2_1"),
    ]
    assert [job.bandwidth_bps > 0 for job in result.jobs] == [
        True,
        False,
        True,
        True,
        True,
    ]
    said = "\n".join(result.notes.not_taken)
    assert "tasks that did not end as Terminated: 1" in said
    assert "tasks without instances, start or end: 2" in said
    assert "tasks of more than 8,192 instances: 1" in said


def test_a_header_and_more_columns_are_read_past(imported: Import) -> None:
    header = (
        "task_name,instance_num,job_name,task_type,status,start_time,"
        "end_time,plan_cpu,plan_mem,machine\n"
    )
    longer = TASKS.replace("0.3\n", "0.3,m_1\n")
    result = imported(header + longer)
    assert [job.name for job in result.jobs] == [
        job.name for job in imported(TASKS).jobs
    ]
    assert any(
        "4 lines have more than 9 fields" in sentence
        for sentence in result.notes.not_taken
    )


@pytest.mark.slow
def test_so_many_tasks_from_the_beginning(imported: Import) -> None:
    lines = [
        f"M1,2,j_{number},1,Terminated,{number},{number + 5},1,1\n"
        for number in range(1, 3000)
    ]
    text = "".join(lines)
    assert len(imported(text).jobs) == 1000
    assert len(imported(text, first=7).jobs) == 7


def test_wrong_lines_are_named_or_left_out(imported: Import) -> None:
    text = TASKS + "M1,2,j_7,1,Terminated\nM1,x,j_8,1,Terminated,1,2,3,4\n"
    message = refused(imported, text)
    assert "has 5 fields, not 9: the line is cut off and 1 more" in message
    result = imported(text, lenient=True)
    assert len(result.jobs) == 5
    assert "lines that cannot be read: 2" in result.notes.not_taken


def test_tasks_that_wait_for_each_other_do_not(imported: Import) -> None:
    text = (
        "M1_2,1,j,1,Terminated,1,2,3,4\nM2_1,1,j,1,Terminated,1,2,3,4\n"
        "M2_2,1,j,1,Terminated,1,2,3,4\n"
    )
    result = imported(text)
    assert [job.after for job in result.jobs] == ["", "j-M1_2", ""]


def test_a_trace_without_a_task_says_why_each_is_left_out(
    imported: Import,
) -> None:
    text = (
        "M1,2,j,1,Failed,1,2,3,4\nM2,99999,j,1,Terminated,1,2,3,4\n"
        "M3,1,j,1,Terminated,2,1,3,4\n"
    )
    message = refused(imported, text)
    assert message.endswith(
        ": has no task that can be run here (tasks that did not end as"
        " Terminated: 1; tasks of more than 8,192 instances: 1; tasks without"
        " instances, start or end: 1)"
    )


def test_tasks_fit_the_network_that_they_are_imported_with(
    imported: Import,
) -> None:
    """Two servers of four slots, with links of 10 Mbit/s."""
    network = (
        "graph [ node [ id 0 ] node [ id 1 ]"
        " edge [ source 0 target 1 LinkSpeedRaw 10000000 ] ]"
    )
    text = "M1,9,j,1,Terminated,1,2,3,4\nM2,8,j,1,Terminated,1,2,3,4\n"
    result = imported(network, text)
    job = job_of(result)
    assert (job.name, job.vms, job.bandwidth_bps) == ("j-M2", 8, 10**7)
    assert "tasks of more than 8 instances: 1" in result.notes.not_taken
    assert result.notes.choices[-1] == (
        "10 Mbit/s for each VM of several: the trace has no bandwidths"
    )
