"""One interpretation of each paper: what its text leaves open, decided once for
all its series and figures, simulated and live.

A figure that shows other interpretations is named in ``SENSITIVITY``; what the
live network forces to be otherwise is in ``LIVE_ONLY``, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reproductions.configuration import Settings

Parameters = Mapping[str, str]


@dataclass(frozen=True)
class Interpretation:
    """Parameters of policies by their names, and values by key of the workload
    section.
    """

    policies: Mapping[str, Parameters] = field(default_factory=dict)
    workload: Parameters = field(default_factory=dict)

    def entry(
        self, policy: str, parameters: Parameters | None = None
    ) -> str:
        """An entry of a file's ``policies``; ``parameters`` replace or join the
        interpretation's.
        """
        every = {
            "name": policy,
            **self.policies.get(policy, {}),
            **(parameters or {}),
        }
        if len(every) == 1:
            return policy
        pairs = [f"{key}: {value}" for key, value in every.items()]
        return f"{{{', '.join(pairs)}}}"

    @property
    def settings(self) -> Settings:
        """The workload's values as settings of an experiment."""
        return tuple(
            (f"workload.{key}", value)
            for key, value in self.workload.items()
        )


RELAX = {"gamma": "0.12"}
BEST_EFFORT = {"best_effort_servers": "0.05"}
"""The "small portion of the cloud resource" for jobs whose profiles are bad:
as many servers as one of twenty aggregation switches has below it.
"""
DCLOUD = Interpretation(
    policies={
        "dcloud": RELAX,
        "dcloud-ts": RELAX,
        "dcloud-bs": RELAX,
        # On the wire flows are independent: so they are in the simulator.
        "bl": {"coupling": "independent"},
    },
    workload={"reading": "G", "pattern": "permutation"},
)
"""Requests are drawn by ``G``, below its floors again, in every figure."""

BASELINE = {"queue": "skip", "late": "drop"}
JSA = Interpretation(
    policies={
        "edf": BASELINE,
        "oktopus-batch": BASELINE,
        "ps-p": {**BASELINE, "coupling": "independent"},
    },
    workload={
        "bandwidth": "200 Mbit/s",
        # Below, acknowledgements would count on the live wire.
        "least_bandwidth": "67 Mbit/s",
        "vm_rate": "80 Mbit/s",
        "start_up": "20 s",
        "spacing": "30 s",
        "pattern": "permutation",
    },
)
"""The three baselines have one queue: a job that does not fit is skipped, and
one that would be late is dropped.
"""

INTERPRETATIONS = {
    "dcloud": DCLOUD,
    "jsa": JSA,
    "adaba": Interpretation(
        policies={
            "bgmbf": {"migration_cost": "0 s"},
            "bgmbf-sdf": {"migration_cost": "0 s"},
        }
    ),
    "cmbf": Interpretation(
        policies={
            name: {"migration_cost": "20 s"}
            for name in ("cmbf", "ambf", "cmcbf", "amcbf")
        }
    ),
    "mbfcbs": Interpretation(),
}
"""By paper."""

SENSITIVITY = (
    "dcloud-bl",
    "dcloud-requests",
    "dcloud-revenue",
    "jsa-interpretations",
    "adaba-interpretations",
    "bgmbf-interpretations",
    "mbfcbs-priority",
    "mbfcbs-haizea",
)
"""Figures whose rows are other interpretations."""

LIVE_ONLY = {
    "bgmbf-kth-live": "agents that move take wall time: three minutes of the log",
    "cmbf-fig1-live": "the example's migrations cost nothing",
    "cmcbf-fig2-live": "the example's migrations cost nothing",
    "cmbf-interference-live": "two VMs on a node, and no migration",
}
"""Live figures with another cost of migrations, and why."""

REVISED = (
    *(f"dcloud-fig{number}" for number in range(5, 10)),
    "dcloud-fig11-live",
    *(f"jsa-fig4{letter}" for letter in "abcd"),
    *(f"jsa-fig5{letter}-live" for letter in "abcd"),
)
"""Figures whose results that name nothing of what was played are from before
the interpretation was one: BL's and PS-P's flows, deadlines at r̄ = 1, EDF's
queue, bandwidths.
"""
