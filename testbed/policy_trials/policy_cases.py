"""Small experiments that a policy is checked with: random ones, and streams of
small jobs in which a large one may starve.

Every case is the text of an experiment file, so that one that a policy fails
can be run by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import yaml

from testbed.policy_trials.example_search import same_examples
from testbed.schedulers.policy import PolicyKind
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

Entry: TypeAlias = Mapping[str, Any]
"""An entry of a file's ``policies``."""
Family = Literal["tree", "fat-tree", "flat", "leases"]
MOST_JOBS = 24


@dataclass(frozen=True)
class Case:
    """An experiment without its policy."""

    name: str
    topology: Mapping[str, Any]
    workload: Mapping[str, Any]
    seed: int = 1
    failures: tuple[Mapping[str, Any], ...] = ()
    scale: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_jobs(self) -> int:
        # Leases are generated: their section has a number of jobs, no list.
        jobs: int | list[Any] = self.workload["jobs"]
        if isinstance(jobs, int):
            return jobs
        return len(jobs)

    def without(self, first: int, number: int) -> Case:
        """The case without ``number`` of its jobs, from index ``first`` on.

        Of generated jobs the last are left out.
        """
        jobs: int | list[Any] = self.workload["jobs"]
        if isinstance(jobs, int):
            fewer: int | list[Any] = max(0, jobs - number)
        else:
            fewer = jobs[:first] + jobs[first + number :]
        return replace(self, workload={**self.workload, "jobs": fewer})

    def text(self, policy: Entry) -> str:
        """The experiment file with one policy."""
        file: dict[str, Any] = {
            "name": self.name,
            "seed": self.seed,
            "topology": dict(self.topology),
            "policies": [dict(policy)],
        }
        if self.scale:
            file["scale"] = dict(self.scale)
        if self.failures:
            file["failures"] = list(map(dict, self.failures))
        file["workload"] = dict(self.workload)
        # A job stays on one line of the file: inner mappings inline, and no
        # line folded.
        text: str = yaml.safe_dump(
            file, sort_keys=False, default_flow_style=None, width=1000
        )
        return text

    def experiment(self, policy: Entry) -> Experiment:
        """The checked experiment. Raises SpecErrors where the policy's entry is
        wrong.
        """
        return parse_experiment(self.text(policy), Path("policy check"))


MINIMAL_CASE = Case(
    "entry",
    {"kind": "flat", "nodes": 1},
    {
        "kind": "jobs",
        "jobs": [
            {"id": "one", "vms": 1, "duration": "1 s", "kind": "compute"}
        ],
    },
)
"""The least experiment in which a policy's entry can be read."""

# -- random cases --------------------------------------------------------------


def _seconds(tenths: int) -> str:
    return f"{tenths / 10:g} s"


def _jobs(
    *, bandwidth: bool, most_vms: int
) -> SearchStrategy[list[dict[str, Any]]]:
    """Jobs that come close upon each other, many of them at the same instants."""
    from hypothesis import strategies as st

    columns = st.tuples(
        # Arrival in tenths of a second, each half second: many coincide.
        st.integers(0, 40).map(lambda n: n - n % 5),
        # VMs, and their bandwidth in units of 100 Mbit/s.
        st.integers(1, most_vms),
        st.integers(1, 9),
        # Duration in tenths of a second, and the deadline in durations.
        st.sampled_from([5, 10, 20, 30, 60]),
        st.sampled_from([None, 1, 2, 5, 20]),
    )
    # The number of jobs first: lists whose length hypothesis chooses are mostly
    # short, and no queue forms.
    tables = st.integers(1, MOST_JOBS).flatmap(
        lambda n: st.lists(columns, min_size=n, max_size=n)
    )
    return tables.map(
        lambda rows: [
            _job_entry(number, row, bandwidth=bandwidth)
            for number, row in enumerate(rows, 1)
        ]
    )


def _job_entry(
    number: int,
    row: tuple[int, int, int, int, int | None],
    *,
    bandwidth: bool,
) -> dict[str, Any]:
    at_tenths, n_vms, hundreds_mbps, tenths, ratio = row
    job: dict[str, Any] = {
        "id": f"j{number}",
        "at": _seconds(at_tenths),
        "vms": n_vms,
    }
    if bandwidth:
        job["bandwidth"] = f"{hundreds_mbps * 100} Mbit/s"
    else:
        job["kind"] = "compute"
    job["duration"] = _seconds(tenths)
    if ratio is not None:
        job["deadline"] = _seconds(tenths * ratio)
    return job


def _tree(draw: DrawFn) -> Case:
    from hypothesis import strategies as st

    fanouts = [
        [2, 2],
        [3, 2],
        [2, 2, 2],
    ]
    fanout = draw(st.sampled_from(fanouts))
    slots = draw(st.integers(1, 3))
    topology = {
        "kind": "tree",
        "fanout": fanout,
        "links": "1 Gbit/s",
        "slots_per_server": slots,
    }
    most_vms = min(7, math.prod(fanout) * slots)
    jobs = draw(_jobs(bandwidth=True, most_vms=most_vms))
    return Case("tree", topology, {"kind": "jobs", "jobs": jobs})


def _fat_tree(draw: DrawFn) -> Case:
    from hypothesis import strategies as st

    slots = draw(st.integers(1, 2))
    topology = {
        "kind": "fat-tree",
        "k": 4,
        "links": "1 Gbit/s",
        "slots_per_server": slots,
    }
    jobs = draw(_jobs(bandwidth=True, most_vms=16))
    return Case("fat-tree", topology, {"kind": "jobs", "jobs": jobs})


def _flat(draw: DrawFn) -> Case:
    from hypothesis import strategies as st

    nodes = draw(st.integers(4, 10))
    jobs = draw(_jobs(bandwidth=False, most_vms=min(8, nodes)))
    return Case(
        "flat",
        {"kind": "flat", "nodes": nodes},
        {"kind": "jobs", "jobs": jobs},
    )


def _leases(draw: DrawFn) -> Case:
    from hypothesis import strategies as st

    topology = {
        "kind": "flat",
        "nodes": draw(st.integers(2, 4)),
        "slots_per_server": 6,
        "memory_per_server": "11520 MiB",
    }
    workload = {
        "kind": "leases",
        "jobs": draw(st.integers(1, MOST_JOBS)),
        "mix": draw(st.sampled_from(["main", "equal"])),
        "load": draw(st.sampled_from([0.5, 1.0, 2.0])),
    }
    return Case("leases", topology, workload, draw(st.integers(1, 1000)))


_FAMILIES: Mapping[Family, Callable[[DrawFn], Case]] = {
    "tree": _tree,
    "fat-tree": _fat_tree,
    "flat": _flat,
    "leases": _leases,
}


def families_of(kind: PolicyKind) -> tuple[Family, ...]:
    """Families of cases that a policy may be able to play."""
    if kind.leases:
        return ("leases",)
    return "tree", "fat-tree", "flat"


def cases(family: Family) -> SearchStrategy[Case]:
    """Random cases of a family."""
    from hypothesis import strategies as st

    return st.composite(_FAMILIES[family])()


def failing_cases() -> SearchStrategy[Case]:
    """Random cases on a tree whose servers and links fail, for good or for a
    while.
    """
    from hypothesis import strategies as st

    def tree_with_failures(draw: DrawFn) -> Case:
        case = _tree(draw)
        fanout = case.topology["fanout"]
        servers = st.integers(0, math.prod(fanout) - 1)
        lost = draw(st.lists(servers, min_size=1, max_size=3, unique=True))
        return replace(
            case,
            failures=tuple(
                _failure(draw, server, fanout[-1]) for server in lost
            ),
        )

    return st.composite(tree_with_failures)()


def _failure(
    draw: DrawFn, server: int, servers_per_rack: int
) -> dict[str, Any]:
    from hypothesis import strategies as st

    failure = {"at": _seconds(draw(st.integers(1, 60)))}
    if draw(st.booleans()):
        failure["server"] = f"server {server}"
    else:
        failure["link"] = (
            f"server {server} - rack {server // servers_per_rack}"
        )
    lasts = draw(st.sampled_from([None, 10, 50]))
    if lasts is None:
        return failure
    return failure | {"lasts": _seconds(lasts)}


def largest(
    cases: SearchStrategy[Case], number: int, seed: int
) -> list[Case]:
    """The ``number`` cases with the most jobs, of five times as many random
    ones.
    """
    tried: list[Case] = []
    # A search that tries all of them: ``append`` returns None, so none fails.
    search(cases, tried.append, number=5 * number, seed=seed)
    return sorted(tried, key=lambda case: -case.n_jobs)[:number]


# -- a small case that fails ---------------------------------------------------


@dataclass(frozen=True)
class Failed:
    """A case that a policy fails, and how."""

    case: Case
    how: str


Problem: TypeAlias = Callable[[Case], str | None]
"""The fault of a policy's run of a case; None where there is none."""


class _CaseFails(BaseException):
    """Ends a search. hypothesis would catch a plain Exception and continue."""


def search(
    cases: SearchStrategy[Case], problem: Problem, *, number: int, seed: int
) -> Failed | None:
    """The first failing case of ``number`` random ones, made smaller; None where
    all pass.
    """
    import hypothesis
    from hypothesis.errors import NoSuchExample

    failed: list[Failed] = []

    def try_case(case: Case) -> bool:
        how = problem(case)
        if how is not None:
            failed.append(Failed(case, how))
            raise _CaseFails
        # ``find`` continues with the next case.
        return False

    # No database: with one, hypothesis tries the failing cases of earlier
    # checks first, and no two checks are the same.
    settings = hypothesis.settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )
    try:
        with same_examples():
            hypothesis.find(
                cases,
                try_case,
                settings=settings,
                random=Random(seed),  # noqa: S311
            )
    except (_CaseFails, NoSuchExample):
        pass
    if failed:
        return smaller(failed[0], problem)
    return None


def smaller(failed: Failed, problem: Problem) -> Failed:
    """A failing case without the jobs that its failure does not need.

    Tries to leave out half of the jobs, then quarters, single ones last; keeps
    those without which the policy passes, if only this time.
    """
    left_out = failed.case.n_jobs // 2
    while left_out:
        first = 0
        while first < failed.case.n_jobs and failed.case.n_jobs > 1:
            case = failed.case.without(first, left_out)
            how = problem(case) if case.n_jobs else None
            if how is None:
                first += left_out
            else:
                # ``first`` stays: the next jobs have moved there.
                failed = Failed(case, how)
        left_out //= 2
    return failed


# -- a large job behind a stream of small ones ---------------------------------

LARGE = "large"
N_SMALL_JOBS = 60


def starving_cases(family: Family) -> tuple[Case, ...]:
    """Streams of small jobs with a large one, which fits the empty data centre.

    The small ones come one after another, each before the last has ended: a
    policy that starts whatever fits never has all nodes free. With 5 s the
    large job is the shortest of all, with 60 s the longest; where the small
    ones have deadlines it has none.
    """
    return tuple(
        _starving(family, large_s, deadlines=deadlines)
        for large_s in (5, 60)
        for deadlines in (False, True)
    )


def _starving(family: Family, large_s: int, *, deadlines: bool) -> Case:
    slots = 32 if family == "fat-tree" else 8
    small: dict[str, Any] = {"vms": slots // 2, "duration": "9 s"}
    large: dict[str, Any] = {"vms": slots, "duration": f"{large_s} s"}
    if deadlines:
        small["deadline"] = "90 s"
    demand = {"bandwidth": "100 Mbit/s"}
    if family in ("flat", "leases"):
        demand = {"kind": "compute"}
    jobs = []
    # Half of the slots for 9 s, one every 5 s: whenever one ends, the next
    # has been running for 4 s.
    for number in range(N_SMALL_JOBS):
        name = f"small-{number:02}"
        jobs.append(
            {"id": name, "at": f"{5 * number} s", **small, **demand}
        )
    # At 7 s the first two fill all slots.
    jobs.append({"id": LARGE, "at": "7 s", **large, **demand})
    # Files list jobs in order of submission; sorting is stable.
    jobs.sort(key=_submitted_s)
    return Case(
        "starving", _small_topology(family), {"kind": "jobs", "jobs": jobs}
    )


def _submitted_s(job: Mapping[str, Any]) -> float:
    """The number in a job's ``at``, such as ``7 s``."""
    number, _ = job["at"].split()
    return float(number)


def _small_topology(family: Family) -> dict[str, Any]:
    """A data centre of 8 slots; a fat-tree has 32."""
    if family in ("flat", "leases"):
        return {"kind": "flat", "nodes": 8}
    topology: dict[str, Any] = {"kind": family}
    if family == "fat-tree":
        topology["k"] = 4
    else:
        topology["fanout"] = [2, 2]
    return topology | {"links": "1 Gbit/s", "slots_per_server": 2}


# -- a small live run ----------------------------------------------------------


def live_case(kind: PolicyKind, families: Sequence[Family]) -> Case:
    """A case of a few seconds for the live network, with more jobs than fit at
    once.
    """
    if kind.leases:
        return _live_leases()
    topology: dict[str, Any] = {"kind": "flat", "nodes": 4}
    demand = {"kind": "compute", "cpu": "10 %"}
    if "tree" in families:
        topology = _small_topology("tree")
        demand = {"bandwidth": "400 Mbit/s"}
    jobs = [
        {
            "id": f"j{number}",
            "at": _seconds(5 * number),
            "vms": 1 + number % 3,
            "duration": "3 s",
            **demand,
        }
        for number in range(8)
    ]
    return Case(
        "live",
        topology,
        {"kind": "jobs", "jobs": jobs},
        scale={"rate": 0.05},
    )


def _live_leases() -> Case:
    topology: dict[str, Any] = {
        "kind": "flat",
        "nodes": 2,
        "slots_per_server": 2,
    }
    leases = {
        "kind": "leases",
        "jobs": 12,
        "mix": "equal",
        "sizes": ["small"],
        "load": 1.5,
        "memory": False,
        "shortest": "15 min",
        # VMs take a moment to start and to end.
        "margin": "3 min",
    }
    return Case("live", topology, leases, scale={"time": 720, "cpu": 0.05})
