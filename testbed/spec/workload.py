"""The ``workload`` section: which jobs. A kind is a model and a reader, registered here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath

from testbed.spec.document import Document
from testbed.spec.drawn import BatchWorkload, PoissonWorkload, read_batch, read_poisson
from testbed.spec.job_list import JobListWorkload, read_job_list
from testbed.spec.ladder import LadderWorkload, read_ladder
from testbed.spec.leases import (
    DrawnLeases,
    LwfWorkload,
    read_drawn_leases,
    read_lwf_workload,
)
from testbed.spec.models import (
    ExponentialWorkload,
    FeitelsonWorkload,
    JannWorkload,
    read_exponential,
    read_feitelson,
    read_jann,
)
from testbed.spec.problems import Path
from testbed.spec.quantities import SpecModel
from testbed.spec.reading import read_kind
from testbed.spec.sourced import Workload
from testbed.spec.swf import SwfWorkload, read_swf_workload
from testbed.spec.swim import SwimWorkload, read_swim_workload
from testbed.spec.topology import Site


@dataclass(frozen=True)
class Circumstances:
    """What a workload may depend on beside its own keys.

    ``beside`` is the file's folder, ``embedder`` the name of who places VMs.
    """

    site: Site
    seed: int
    beside: FilePath
    embedder: str


@dataclass(frozen=True)
class WorkloadKind:
    """A kind of workload.

    ``read`` reports what is wrong to the document and returns the jobs, in order of submission or
    of the file.
    """

    model: type[SpecModel]
    read: Callable[[Document, Path, Circumstances], Workload]


WORKLOADS: dict[str, WorkloadKind] = {
    "jobs": WorkloadKind(JobListWorkload, lambda d, p, c: read_job_list(d, p, c.site)),
    "ladder": WorkloadKind(LadderWorkload, lambda d, p, c: read_ladder(d, p, c.site, c.embedder)),
    "poisson": WorkloadKind(PoissonWorkload, lambda d, p, c: read_poisson(d, p, c.seed)),
    "batch": WorkloadKind(BatchWorkload, lambda d, p, c: read_batch(d, p, c.seed)),
    "swf": WorkloadKind(
        SwfWorkload, lambda d, p, c: read_swf_workload(d, p, c.site, c.seed, c.beside)
    ),
    "feitelson": WorkloadKind(
        FeitelsonWorkload, lambda d, p, c: read_feitelson(d, p, c.site, c.seed)
    ),
    "jann": WorkloadKind(JannWorkload, lambda d, p, c: read_jann(d, p, c.site, c.seed)),
    "exponential": WorkloadKind(
        ExponentialWorkload, lambda d, p, c: read_exponential(d, p, c.site, c.seed)
    ),
    "leases": WorkloadKind(DrawnLeases, lambda d, p, c: read_drawn_leases(d, p, c.site, c.seed)),
    "swim": WorkloadKind(
        SwimWorkload, lambda d, p, c: read_swim_workload(d, p, c.site, c.seed, c.beside)
    ),
    "lwf": WorkloadKind(LwfWorkload, lambda d, p, c: read_lwf_workload(d, p, c.beside)),
}


def read_workload(
    document: Document, path: Path, circumstances: Circumstances
) -> tuple[str, Workload]:
    """The workload's kind and its jobs; what is wrong goes to the document."""
    kind = read_kind(document, path, tuple(WORKLOADS), "workload")
    if kind is None:
        return "", Workload()
    return kind, WORKLOADS[kind].read(document, path, circumstances)
