"""Published traces by name: where the public original is, and what its checksum must be.

The traces themselves are no part of this project; what stands here are facts about them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

TraceFormat = Literal["swf", "swim", "lwf"]


@dataclass(frozen=True)
class PublishedTrace:
    """A trace that experiments here use. ``sha256`` is that of the unpacked file."""

    name: str
    format: TraceFormat
    what: str
    jobs: int
    archive: str
    log: str
    sha256: str
    thanks: str

    @property
    def origin(self) -> str:
        """The archive and the name it has there."""
        return f"{self.archive}, {self.log}"


_PWA = "Parallel Workloads Archive"
_PWA_THANKS = (
    'cite "Experience with using the Parallel Workloads Archive" (Feitelson, Tsafrir, Krakov,'
    " J. Parallel Distrib. Comput. 2014) and name the archive"
)
_HAIZEA = "Haizea traces"
_HAIZEA_THANKS = "Haizea (Borja Sotomayor), Apache-2.0"

PUBLISHED: tuple[PublishedTrace, ...] = (
    PublishedTrace(
        "KTH-SP2-1996-2.1-cln.swf.gz",
        "swf",
        "IBM SP2, 100 nodes, 11 months",
        28_476,
        _PWA,
        "log l_kth_sp2",
        "fba36494c4e4257f72182e8b629ebb0bcb054b3b82851ef957445bd627adcc87",
        f"{_PWA_THANKS}; acknowledge Lars Malinowsky",
    ),
    PublishedTrace(
        "NASA-iPSC-1993-3.1-cln.swf.gz",
        "swf",
        "iPSC/860, 128 nodes, 3 months",
        18_239,
        _PWA,
        "log l_nasa_ipsc",
        "9d997a2c20a7f7b0b6d81638d756ce8b2c524c4f2e9ec78da36001743ca33d76",
        f"{_PWA_THANKS}; acknowledge Bill Nitzberg",
    ),
    PublishedTrace(
        "FB-2009_samples_24_times_1hr_0.tsv.gz",
        "swim",
        "Facebook Hadoop sample, 24 hours",
        5_894,
        "SWIM",
        "workloadSuite",
        "5033ea98faed398b132957e4555c9ba88653d1ffaac470f370b761b79cd44c19",
        "SWIM (Chen, Ganapathi, Griffith, Katz, MASCOTS 2011), New BSD",
    ),
    PublishedTrace(
        "haizea/15days.swf.gz",
        "swf",
        "best-effort background from SDSC Blue, 15 days",
        3_383,
        _HAIZEA,
        "15days.swf",
        "1ca24af2d0100522dbcafbb2c7a3bed3140bdfb52d60e8a9a45b5be15d53a63a",
        _HAIZEA_THANKS,
    ),
    PublishedTrace(
        "haizea/30days.swf.gz",
        "swf",
        "best-effort background from SDSC Blue, 30 days",
        5_545,
        _HAIZEA,
        "30days.swf",
        "04c6c1795e1c8ce7ebb8f7beb1a403c2cd954c12e608a174f0b9cf003412307e",
        _HAIZEA_THANKS,
    ),
    PublishedTrace(
        "haizea/inj1.lwf",
        "lwf",
        "advance reservations injected into the background",
        13,
        _HAIZEA,
        "inj1.lwf",
        "f61be41446a2a5f95dfe0b9b3ee5dfac8e05c91757c17857987889c70cb94439",
        _HAIZEA_THANKS,
    ),
    PublishedTrace(
        "haizea/withprematureend.lwf",
        "lwf",
        "best-effort leases that end before their time",
        139,
        _HAIZEA,
        "withprematureend.lwf",
        "bc4b735e64122395e7952b314cde2b52a04bbd4ccf43d98a499625811c1dd532",
        _HAIZEA_THANKS,
    ),
    PublishedTrace(
        "haizea/work_05-dur_1h-size_1small.lwf",
        "lwf",
        "advance reservations, 5 % of the cluster, 1 h, small",
        207,
        _HAIZEA,
        "work_05-dur_1h-size_1small.lwf",
        "79b1d1218269bbcee3a9b4a577efae5885a0a11bed30490b8051926c7d02b70b",
        _HAIZEA_THANKS,
    ),
    PublishedTrace(
        "haizea/work_10-dur_2h-size_1small.lwf",
        "lwf",
        "advance reservations, 10 % of the cluster, 2 h, small",
        213,
        _HAIZEA,
        "work_10-dur_2h-size_1small.lwf",
        "8b683fb32e79339c3edb9974d48307c7139604cd7ced3b8966ea31fdcaca7104",
        _HAIZEA_THANKS,
    ),
    PublishedTrace(
        "haizea/work_10-dur_2h-size_2medium.lwf",
        "lwf",
        "advance reservations, 10 % of the cluster, 2 h, medium",
        71,
        _HAIZEA,
        "work_10-dur_2h-size_2medium.lwf",
        "58475b9b1edca0d52ee713e4eab80b583b42afb65a6be6e2625b7c139d0edb8a",
        _HAIZEA_THANKS,
    ),
)


def published(name: str) -> PublishedTrace | None:
    """The published trace that a file is named after, packed or not, in whatever folder."""
    wanted = PurePath(name).name.removesuffix(".gz")
    return next((t for t in PUBLISHED if PurePath(t.name).name.removesuffix(".gz") == wanted), None)
