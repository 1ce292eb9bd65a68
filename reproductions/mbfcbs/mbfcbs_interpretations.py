"""MBFCBS's comparison on other grounds: with priorities by the work that a lease
asks for, with as many leases of each type, and on Haizea's own traces.

The paper says of the priority algorithm that each job has "a determined
priority", and not by what. Of its workload it says: "the simulated workload
trace given as [23] having AR and BE mode requests. An additional set of IM jobs
are interleaved in between", of which "3 sets of 1000 jobs" were taken. Of the
types it says both "the number of AR jobs ... as 20%" and "mixed equally with all
three types of requests".
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from jobs.workload.distributions import stream
from jobs.workload.lwf import LeaseRecord, read_lwf
from jobs.workload.swf import NEEDED, jobs_of, read_swf
from reproductions.configuration import (
    FOLDER,
    RunConfiguration,
    Variant,
    measured,
    require_trace,
    settings,
)
from reproductions.extractors import LEASE_METRICS
from reproductions.grid_quantities import Measures
from reproductions.mbfcbs.mbfcbs_leases import (
    AR,
    BE,
    COMPLETION,
    FIGURE_6_SIZE,
    IM,
    MAKESPAN,
    MBFCBS,
    PRIORITY,
    SUCCESS,
    USE,
    USE_EARLY,
    VMCT,
    with_advance,
)
from reproductions.published_figure import Figure, Panel
from testbed.spec.document import find_file

BY_WORK = "priority, by work"
EQUAL = ", equal mix"
THREE_TYPES = ", three types of VMs"
ENTRIES = {
    MBFCBS: "mbfcbs",
    VMCT: "v-mct",
    PRIORITY: "priority",
    BY_WORK: "{name: priority, criterion: work}",
}
FILE = "mbfcbs/mbfcbs-large.yaml"
PANELS = (
    Panel(SUCCESS),
    Panel(USE),
    Panel(COMPLETION),
    Panel(MAKESPAN),
)
ALSO = (AR, IM, BE, USE_EARLY)

# -- priorities, and types of leases -------------------------------------------

# As judged, but for the shares of the types.
EQUALLY_MIXED = tuple(
    f"{series}{EQUAL}" for series in (MBFCBS, VMCT, PRIORITY)
)
# As judged, but for x-large VMs, which Table 2 does not have.
OF_TABLE_2 = tuple(
    f"{series}{THREE_TYPES}" for series in (MBFCBS, VMCT, PRIORITY)
)
COUNTS = (100.0, 400.0, 1000.0)
SIZE = (
    "50 hosts of 6 cores; leases of 1 to 6 cores, the most are a load of "
    "1.5"
)


def _prioritised(
    series: str, count: float, seed: int, quick: bool
) -> RunConfiguration:
    del quick  # it takes seconds as it is
    values = settings(jobs=int(count), load=0.0015 * count)
    policy = series.removesuffix(EQUAL).removesuffix(THREE_TYPES)
    if series.endswith(EQUAL):
        values = (*values, *settings(mix="equal"))
    if series.endswith(THREE_TYPES):
        values = (*values, *settings(sizes="[small, medium, large]"))
    variant = Variant(FILE, ENTRIES[policy], values)
    return RunConfiguration(variant, seed, LEASE_METRICS, count)


_compared = partial(Figure, panels=PANELS, also=ALSO)

PRIORITIES = _compared(
    name="mbfcbs-priority",
    title=(
        "Priorities by type, by type over the work asked for, with as many "
        "leases of each type, and with three types of VMs"
    ),
    series=(*ENTRIES, *EQUALLY_MIXED, *OF_TABLE_2),
    source="MBFCBS, Figs. 8 to 11",
    x_label="leases",
    xs=COUNTS,
    configuration=_prioritised,
    size=SIZE,
    quick_size=SIZE,
    seeds=10,
)

# -- Haizea's traces -----------------------------------------------------------

BACKGROUND = "haizea/30days.swf.gz"
# Advance reservations that are injected, by set.
SETS = {
    1.0: "haizea/30days-work_20-dur_1h-size_1small.lwf",
    2.0: "haizea/30days-work_20-dur_3h-size_1small.lwf",
    3.0: "haizea/30days-work_20-dur_2h-size_2medium.lwf",
}
LEASES = 1000
# Of the leases of a set: the share of the main comparison, that of immediate
# leases alone. Of the others the traces decide: 189, 79 and 39 are advance
# reservations, where the main comparison has 200.
IMMEDIATE = 400
# Cores and memory in MiB of the VM types of Table 2.
TYPES = ((1, 1920), (2, 3840), (4, 7680))


@dataclass(frozen=True)
class HaizeaConfiguration:
    """A run of a policy over a set of leases. The seed draws the immediate
    leases and every lease's type of VM.
    """

    policy: str
    injected: str
    seed: int

    @property
    def variant(self) -> Variant:
        """The experiment, but for its workload."""
        return Variant(FILE, self.policy)

    @property
    def traces(self) -> tuple[str, ...]:
        """The published files that it reads."""
        return (BACKGROUND, self.injected)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.variant.to_json(),
            "traces": list(self.traces),
            "seed": self.seed,
        }

    def cost(self) -> float:
        return float(LEASES)

    def run(self) -> Measures:
        """Plays the run and takes the measures of a simulated run of leases."""
        began_s = time.process_time()
        leases = haizea_leases(self.injected, self.seed)
        # An experiment reads its leases from a file.
        with TemporaryDirectory() as folder:
            path = Path(folder) / "leases.lwf"
            path.write_text("".join(map(_line, leases)), "utf-8")
            workload = f"{{kind: lwf, path: '{path}'}}"
            variant = replace(
                self.variant, settings=(("workload", workload),)
            )
            experiment = variant.experiment(self.seed)
        measures = measured(experiment, LEASE_METRICS)
        return {**measures, "cpu_s": time.process_time() - began_s}


def haizea_leases(injected: str, seed: int) -> list[LeaseRecord]:
    """The first leases of the background and of what is injected, with
    immediate ones interleaved, in order of arrival.

    An immediate lease arrives at a uniform moment, and has the nodes and the
    duration of a best-effort lease that is drawn. Raises MachineCannot where a
    trace is missing.
    """
    known = [*_background(), *_injected(injected)]
    known.sort(key=attrgetter("arrival_s"))
    # Each set has as many leases, and as many immediate ones among them.
    known = known[: LEASES - IMMEDIATE]
    like = [lease for lease in known if lease.kind == "BE"]
    span_s = known[-1].arrival_s
    moments = stream(seed, "haizea", "moments").random(IMMEDIATE)
    drawn = stream(seed, "haizea", "like").integers(
        len(like), size=IMMEDIATE
    )
    for moment, index in zip(moments, drawn, strict=True):
        arrival_s = float(round(span_s * moment))
        known.append(
            replace(
                like[index],
                kind="IM",
                arrival_s=arrival_s,
                start_s=arrival_s,
            )
        )
    known.sort(key=attrgetter("arrival_s"))
    return _typed(known, seed)


def _typed(leases: Sequence[LeaseRecord], seed: int) -> list[LeaseRecord]:
    """The leases with a type of VM drawn for each."""
    drawn = stream(seed, "haizea", "types").integers(
        len(TYPES), size=len(leases)
    )
    typed = []
    for lease, index in zip(leases, drawn, strict=True):
        cores, memory_mb = TYPES[index]
        typed.append(replace(lease, cores=cores, memory_mb=memory_mb))
    return typed


def _background() -> list[LeaseRecord]:
    """The best-effort leases: jobs of the log below Haizea's leases. Raises
    MachineCannot where it is missing.
    """
    require_trace(BACKGROUND)
    path = find_file(BACKGROUND, FOLDER)
    assert path is not None  # noqa: S101 - required above
    jobs = jobs_of(read_swf(path, names=NEEDED)).jobs
    # Where no running time was stated the true one is taken.
    stated_s = np.where(np.isnan(jobs.stated_s), jobs.run_s, jobs.stated_s)
    leases = []
    for index, number in enumerate(jobs.number):
        lease = LeaseRecord(
            name=f"best-effort-{number}",
            kind="BE",
            arrival_s=float(jobs.submit_s[index]),
            start_s=None,
            duration_s=float(stated_s[index]),
            nodes=int(jobs.processes[index]),
            real_s=float(jobs.run_s[index]),
        )
        leases.append(lease)
    return leases


def _injected(name: str) -> list[LeaseRecord]:
    """The advance reservations of a file. Raises MachineCannot where it is
    missing.
    """
    require_trace(name)
    path = find_file(name, FOLDER)
    assert path is not None  # noqa: S101 - required above
    # These files are in order of the starts, and a reader asks for that of
    # the arrivals.
    lines = path.read_text("utf-8").splitlines(keepends=True)
    lines.sort(key=lambda line: int(line.split()[0]))
    with TemporaryDirectory() as folder:
        ordered = Path(folder) / "ordered.lwf"
        ordered.write_text("".join(lines), "utf-8")
        leases = read_lwf(ordered).jobs
    return [replace(lease, kind="AR") for lease in leases]


def _line(lease: LeaseRecord) -> str:
    """A lease in Haizea's older form; an advance reservation starts a second
    after its arrival at least, which tells it from an immediate lease.
    """
    arrival_s = round(lease.arrival_s)
    start_s = -1 if lease.start_s is None else round(lease.start_s)
    if lease.kind == "AR":
        start_s = max(start_s, arrival_s + 1)
    duration_s = max(1, round(lease.duration_s))
    real_s = duration_s
    if lease.real_s is not None:
        real_s = min(duration_s, max(1, round(lease.real_s)))
    sizes = f"{lease.nodes} {lease.cores} {lease.memory_mb}"
    times = f"{arrival_s} {start_s} {duration_s} {real_s}"
    return f"{times} {sizes} 0 NONE.img 600\n"


def _of_trace(
    series: str, number: float, seed: int, quick: bool
) -> HaizeaConfiguration:
    del quick  # it takes seconds as it is
    return HaizeaConfiguration(ENTRIES[series], SETS[number], seed)


HAIZEA_SIZE = (
    "50 hosts of 6 cores with memory; three sets of 1,000 leases, with 189, "
    "79 and 39 advance reservations"
)
HAIZEA = _compared(
    name="mbfcbs-haizea",
    title="Haizea's traces with immediate leases interleaved",
    series=tuple(ENTRIES),
    source="MBFCBS, Figs. 8 to 11",
    x_label="set of leases",
    xs=tuple(SETS),
    configuration=_of_trace,
    size=HAIZEA_SIZE,
    quick_size=HAIZEA_SIZE,
    seeds=5,
)


# -- immediate leases beside advance reservations -------------------------------

# The policy's entry, and the load.
ALTERNATIVES: dict[str, tuple[str, float]] = {
    "as judged": ("mbfcbs", 1.5),
    "nobody makes way": ("{name: mbfcbs, preemption: false}", 1.5),
    "a load of 3": ("mbfcbs", 3.0),
}


def _beside_advance(
    series: str, advance_percent: float, seed: int, quick: bool
) -> RunConfiguration:
    del quick  # it takes a second as it is
    entry, load = ALTERNATIVES[series]
    return with_advance(entry, advance_percent, seed, load=load)


SHARES_OF_ADVANCE = Figure(
    name="mbfcbs-shares",
    title="Success of immediate leases by the share of advance reservations",
    source="MBFCBS, Fig. 6",
    x_label="share of advance reservations [%]",
    xs=(10.0, 60.0),
    series=tuple(ALTERNATIVES),
    configuration=_beside_advance,
    panels=(Panel(AR), Panel(IM), Panel(BE)),
    size=FIGURE_6_SIZE,
    quick_size=FIGURE_6_SIZE,
    seeds=20,
)
