"""Sizes that a file implies: refused at the line that implies them, before anything is built."""

from __future__ import annotations

import gzip
import re
import tracemalloc
from pathlib import Path

import pytest

from testbed.spec.document import SpecErrors
from testbed.spec.experiment_file import parse_experiment
from testbed.spec.size_limits import LIMITS

TREE = "{kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}"
FLAT = "{kind: flat, nodes: 10, slots_per_server: 8}"
ONE = "{kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s}]}"
PAGE = Path(__file__).parents[3] / "docs" / "experiment-files.md"


def file_of(topology: str, workload: str, policies: str = "") -> str:
    named = f"policies: {policies}\n" if policies else ""
    return f"topology: {topology}\n{named}workload: {workload}\n"


def errors(text: str, folder: Path) -> list[str]:
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(text, folder / "x.yaml")
    return [
        str(problem).replace(f"{folder}/", "")
        for problem in caught.value.problems
    ]


def bandwidth_job(vms: int, keys: str = "") -> str:
    job = f"{{id: a, vms: {vms}, bandwidth: 1 Mbit/s, duration: 2 s{keys}}}"
    return f"{{kind: jobs, jobs: [{job}]}}"


AGES = (
    "{kind: leases, jobs: 10, mean_lead: 30000 d, mean_duration: 30000 d}"
)
ALL_TO_ALL = ", pattern: all-to-all"
WIDE = "{kind: tree, fanout: [2000], links: 1 Gbit/s, slots_per_server: 1}"
UNEVEN = (
    f"{{kind: flat, nodes: 101, slots_per_server: [100000{', 1' * 100}]}}"
)
MANY = f"[{', '.join(f'{{name: dcloud, gamma: 0.{n:03}1}}' for n in range(101))}]"

IMPLIED = [
    (
        file_of(FLAT, AGES, "[{name: mbfcbs, slot: 1 s}]"),
        "2:33",
        "calendar slots",
    ),
    (file_of(FLAT, AGES, "[mbfcbs]"), "2:12", "calendar slots"),
    (file_of(FLAT, AGES), "2:11", "calendar slots"),
    (
        file_of(FLAT, AGES, "[{name: mbfcbs, slot: 1 s}, v-mct, priority]"),
        "2:33",
        "calendar slots",
    ),
    (
        file_of(
            f"{{kind: flat, nodes: 101, slots_per_server: [100000{', 1' * 100}]}}",
            "{kind: leases}",
        ),
        "2:11",
        "cores in a table of availability",
    ),
    (
        file_of("{kind: flat, nodes: 100000, slots_per_server: 1000}", ONE),
        "1:57",
        "slots",
    ),
    (
        file_of("{kind: flat, nodes: 2, slots_per_server: 1000001}", ONE),
        "1:52",
        "slots a server",
    ),
    (file_of(TREE, ONE, MANY), "2:11", "policies"),
    (
        file_of(TREE, "{kind: poisson, per_hour: 1000000, hours: 1000}"),
        "2:37",
        "jobs",
    ),
    (
        file_of(
            FLAT,
            "{kind: feitelson, jobs: 2000000, largest: 65536, size_exponent: 0}",
        ),
        "2:11",
        "processes with a CPU use of their own",
    ),
    (
        file_of(FLAT, "{kind: jann, jobs: 100, load: 0.000000000000001}"),
        "2:41",
        "seconds of arrivals",
    ),
    (
        file_of(FLAT, "{kind: leases, jobs: 10, load: 0.000000000000001}"),
        "2:42",
        "seconds of arrivals",
    ),
    (
        file_of(WIDE, bandwidth_job(2000, ALL_TO_ALL), "[bl]"),
        "2:12",
        "flows of one job",
    ),
    (
        file_of(
            TREE,
            "{kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 30000 d}]}",
            "[{name: bl, coupling: independent}]",
        ),
        "2:12",
        "times that rates are computed anew",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "place", "what"), IMPLIED, ids=[what for *_, what in IMPLIED]
)
def test_a_size_is_refused_at_the_line_that_implies_it(
    text: str, place: str, what: str, tmp_path: Path
) -> None:
    (found, *_) = [
        line for line in errors(text, tmp_path) if f" {what};" in line
    ]
    assert found.startswith(f"x.yaml:{place}: "), found
    assert f"at most {LIMITS[what]:,} are supported: " in found


def test_refusing_a_calendar_takes_no_room(tmp_path: Path) -> None:
    text = file_of(FLAT, AGES, "[{name: mbfcbs, slot: 1 s}]")
    errors(text, tmp_path)  # modules are loaded
    tracemalloc.start()
    try:
        errors(text, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        file_of(
            FLAT, "{kind: leases, jobs: 1000}", "[mbfcbs, v-mct, priority]"
        ),
        file_of(
            "{kind: flat, nodes: 8000, slots_per_server: 6}",
            "{kind: leases, jobs: 20000}",
        ),
        file_of(WIDE, bandwidth_job(2000, ALL_TO_ALL), "[vc]"),
        file_of(WIDE, bandwidth_job(900, ALL_TO_ALL), "[bl]"),
        file_of(FLAT, "{kind: jann, jobs: 20000}"),
    ],
)
def test_ordinary_sizes_are_within_the_limits(
    text: str, tmp_path: Path
) -> None:
    assert parse_experiment(text, tmp_path / "x.yaml").jobs


@pytest.mark.slow
def test_roots_times_nodes_are_limited(tmp_path: Path) -> None:
    count = 3300
    tops = [f"c{n}" for n in range(count)]
    links = [
        {"lower": "r", "upper": name, "capacity": "1 Gbit/s"}
        for name in tops
    ]
    content = {
        "kind": "custom",
        "servers": [{"name": "s", "slots": 2}],
        "switches": ["r", *tops],
        "links": [
            {"lower": "s", "upper": "r", "capacity": "1 Gbit/s"},
            *links,
        ],
        "roots": tops,
    }
    text = f"topology: {content}\nworkload: {ONE}\n".replace("'", "")
    (found,) = errors(text, tmp_path)
    assert (
        "topology.roots: 3,302 nodes may have 3,028 roots, not 3,300"
        in found
    )


def test_a_lease_of_a_trace_is_limited_too(tmp_path: Path) -> None:
    (tmp_path / "t.lwf").write_text(
        "0 100 99999999999 99999999999 1 1 512 0 image 0\n"
    )
    text = file_of(FLAT, "{kind: lwf, path: t.lwf}")
    (found,) = errors(text, tmp_path)
    assert "calendar slots" in found


def test_one_line_of_a_small_archive_is_not_unpacked_without_end(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.swf.gz").write_bytes(
        gzip.compress(b"1 " * (50 << 20), compresslevel=1)
    )
    tracemalloc.start()
    try:
        found = errors(
            file_of(FLAT, "{kind: swf, path: t.swf.gz}"), tmp_path
        )
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert any(
        "t.swf.gz:1:1: a line of more than 1,048,576 characters" in line
        for line in found
    )


# ------------------------------------------------------------------ long files end


LONG = 3000
LONG_HEAD = f"topology: {TREE}\nworkload:\n  kind: jobs\n  jobs:\n"


def each_after(name: str, step: int) -> str:
    """A long list of jobs; number n follows job ``name`` n + ``step``."""
    return "".join(
        f"    - {{id: j{n}, vms: 1, bandwidth: 1 bit/s, duration: 1 s, after: {name}{n + step}}}\n"
        for n in range(LONG)
    )


@pytest.mark.slow
def test_a_long_chain_of_jobs_is_checked_in_its_length(
    tmp_path: Path,
) -> None:
    jobs = f"{LONG_HEAD}{each_after('j', 1)}"
    last = f"    - {{id: j{LONG}, vms: 1, bandwidth: 1 bit/s, duration: 1 s"
    whole = parse_experiment(f"{jobs}{last}}}\n", tmp_path / "x.yaml")
    assert len(whole.jobs) == LONG + 1
    (found,) = errors(f"{jobs}{last}, after: j0}}\n", tmp_path)
    assert "these jobs wait for each other: j0 after j1 after j2" in found


@pytest.mark.slow
def test_many_names_are_not_all_compared(tmp_path: Path) -> None:
    found = errors(f"{LONG_HEAD}{each_after('k', 0)}", tmp_path)
    assert len(found) == LONG
    assert found[0].endswith("there is no job 'k0'")


def test_a_floor_that_draws_seldom_reach_is_refused(tmp_path: Path) -> None:
    text = file_of(
        TREE, "{kind: poisson, duration: {mean: 1 us, sigma: 20 s}}"
    )
    (found,) = errors(text, tmp_path)
    assert "hardly ever reaches 60" in found


# ------------------------------------------------------------------ the page


def test_the_page_states_the_limits_as_they_are() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Limits of sizes")[
        2
    ]
    table = dict(
        re.findall(r"^\| ([^|]+) \| ([0-9,]+) \|", text, re.MULTILINE)
    )
    assert table == {name: f"{most:,}" for name, most in LIMITS.items()}
