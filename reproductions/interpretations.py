"""One interpretation of each paper: what its text leaves open, decided once for
all its series and figures, simulated and live.

A test compares every setting of every point of a paper's figures, with each
other and with what is stated here. Settings may differ where a figure is about
them (``ABOUT``), where the paper itself has another size (``OTHERWISE``), and
where the live network forces it (``LIVE_ONLY``). A figure that shows other
interpretations is named in ``SENSITIVITY``. The factors of ``scale`` are no
interpretation: the wire's packets follow from them
(docs/decisions/13-buckets-packets-windows.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reproductions.configuration import Settings, settings
from reproductions.interpretation_rows import labels_of

Parameters = Mapping[str, str]


@dataclass(frozen=True)
class Interpretation:
    """Parameters of policies by their names, and values by key of the workload
    section: figures set both in their runs.

    ``by_default`` are parameters that the policies have unless an entry names
    them, ``in_files`` values by dotted key that the experiment files have. No
    figure sets either; the test compares them with what is played.
    """

    policies: Mapping[str, Parameters] = field(default_factory=dict)
    workload: Parameters = field(default_factory=dict)
    by_default: Mapping[str, Parameters] = field(default_factory=dict)
    in_files: Parameters = field(default_factory=dict)

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
        # A policy without parameters is an entry by its name alone.
        if len(every) == 1:
            return policy
        pairs = [f"{key}: {value}" for key, value in every.items()]
        return f"{{{', '.join(pairs)}}}"

    @property
    def settings(self) -> Settings:
        """The workload's values as settings of an experiment."""
        return settings(**self.workload)


RELAX = {"gamma": "0.12"}
# The "small portion of the cloud resource" for jobs whose profiles are bad:
# as many servers as one of twenty aggregation switches has below it.
BEST_EFFORT = {"best_effort_servers": "0.05"}
# Requests are drawn by ``G``, below its floors again, in every figure.
DCLOUD = Interpretation(
    policies={
        "dcloud": RELAX,
        "dcloud-ts": RELAX,
        "dcloud-bs": RELAX,
        # On the wire flows are independent: so they are in the simulator.
        "bl": {"coupling": "independent"},
    },
    workload={"reading": "G", "pattern": "permutation"},
    by_default={"bl": {"allocation": "max-min", "capped": "true"}},
    in_files={
        "topology.kind": "tree",
        "topology.links": "1 Gbit/s",
        "topology.oversubscription": "[2, 4]",
        "enforcement": "strict",
        "workload.duration": "{mean: 1 h}",
        "workload.services": "0",
    },
)

BASELINE = {"queue": "skip", "late": "drop"}
# The three baselines have one queue: a job that does not fit is skipped,
# and one that would be late is dropped.
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
    in_files={
        "topology.kind": "tree",
        "topology.links": "1 Gbit/s",
        # "The oversubscription is 5" is that of each level.
        "topology.oversubscription": "[5, 5]",
        "workload.batches": "5",
        "workload.reward": "[100, 1000]",
        "workload.deadline_factor": "[2, 7]",
        "workload.speedup": "[0, 0.14]",
        "workload.volume": "profile",
    },
)

# Parallel links of two layers count as one, in every simulated figure; the
# cap gives Table 1's bandwidths on average.
ADABA = Interpretation(
    policies={
        "bgmbf": {"migration_cost": "0 s"},
        "bgmbf-sdf": {"migration_cost": "0 s"},
    },
    by_default={
        "bgmbf": {"evict": "all"},
        "bgmbf-sdf": {"evict": "all"},
        "sbf": {"skip": "false"},
        "sdf": {"skip": "false"},
    },
    in_files={
        "topology.kind": "fat-tree",
        "topology.network": "pooled",
        "topology.links": "1 Gbit/s",
        "embedder": "adaba",
        "workload.bandwidth.max_b_cap": "455 Mbit/s",
        "workload.bandwidth.sigma": "20 %",
        "workload.load": "0.5",
        "workload.mean_vms": "8",
        "workload.processes_per_vm": "1",
        "workload.zero_run_time": "raise",
        "workload.pattern": "ring",
    },
)

CONSOLIDATING = ("cmbf", "ambf", "cmcbf", "amcbf")
CMBF = Interpretation(
    policies={name: {"migration_cost": "20 s"} for name in CONSOLIDATING},
    by_default={
        "cmcbf": {"cpu": "known"},
        "amcbf": {"cpu": "known"},
        "easy": {"estimates": "accurate"},
    },
    in_files={
        "topology.kind": "flat",
        "topology.slots_per_server": "1",
        "embedder": "first-fit",
        "workload.cpu.low": "40 %",
        "workload.cpu.high": "100 %",
    },
)
MBFCBS = Interpretation(
    by_default={
        "mbfcbs": {
            "preemption": "true",
            "earliest": "true",
            "depth": "100",
        },
        "priority": {
            "criterion": "type",
            "advance": "3",
            "immediate": "2",
            "best_effort": "1",
        },
    },
    in_files={
        "topology.kind": "flat",
        "workload.mean_duration": "1 h",
        "workload.mean_lead": "2 h",
        "workload.shortest": "1 min",
    },
)

INTERPRETATIONS = {
    "dcloud": DCLOUD,
    "jsa": JSA,
    "adaba": ADABA,
    "cmbf": CMBF,
    "mbfcbs": MBFCBS,
}

# Figures whose rows are other interpretations.
SENSITIVITY = (
    "dcloud-bl",
    "dcloud-requests",
    "dcloud-revenue",
    "dcloud-room",
    "dcloud-least",
    "dcloud-least-day",
    "jsa-interpretations",
    "jsa-large-interpretations",
    "adaba-interpretations",
    "adaba-log-interpretations",
    "adaba-anywhere",
    "bgmbf-interpretations",
    "mbfcbs-priority",
    "mbfcbs-haizea",
    "mbfcbs-shares",
)

# The series of a sensitivity figure that have the interpretation itself.
AS_JUDGED = {
    "dcloud-bl": ("permutation, independent",),
    "dcloud-requests": labels_of(("DCloud", "VC"), "G"),
    "dcloud-revenue": labels_of(("DCloud", "VC"), "as judged"),
    "dcloud-room": labels_of(("DCloud", "VC"), "G"),
    "dcloud-least": ("DCloud-BS", "VC", "BL"),
    "dcloud-least-day": ("DCloud-BS", "VC"),
    "jsa-interpretations": labels_of(
        ("JSA", "EDF", "Oktopus", "PS-P"), "as judged"
    ),
    "jsa-large-interpretations": labels_of(
        ("JSA", "EDF", "Oktopus", "PS-P"), "as judged"
    ),
    "adaba-interpretations": labels_of(
        ("AdaBa", "best fit", "Oktopus", "greedy", "first fit"), "as judged"
    ),
    "adaba-log-interpretations": labels_of(
        ("AdaBa", "best fit", "Oktopus", "greedy"), "as judged"
    ),
    "adaba-anywhere": ("AdaBa", "Oktopus"),
    "bgmbf-interpretations": labels_of(
        ("FCFS", "SBF", "SDF", "BgMBF", "BgMBF-SDF"), "as judged"
    ),
    "mbfcbs-priority": ("MBFCBS", "V-MCT", "priority"),
    "mbfcbs-haizea": ("MBFCBS", "V-MCT", "priority"),
    "mbfcbs-shares": ("as judged",),
}


@dataclass(frozen=True)
class Otherwise:
    """Settings by dotted key that figures have otherwise than the rest of
    their paper's, and the reason.
    """

    figures: tuple[str, ...]
    keys: tuple[str, ...]
    reason: str


_BANDWIDTH = "workload.bandwidth.mean"
_LOAD = "workload.load"
_LOGS = (_LOAD, "workload.path")
_COUNT = "workload.jobs"
_LEASES = (_COUNT, _LOAD)
_DEFAULT_OF_HAIZEA = (
    "policies.mbfcbs.preemption",
    "policies.mbfcbs.earliest",
    "policies.mbfcbs.depth",
)
_ERRORS = ("workload.profiling_error.low", "workload.profiling_error.high")
_MODELS = (
    "workload.kind",
    _COUNT,
    "workload.mean_run_time",
    "workload.power_of_two",
    "workload.serial",
)

# The settings that a figure is about: on its axis, or between its series.
ABOUT: Mapping[str, tuple[str, ...]] = {
    "dcloud-fig4": ("policies.dcloud.gamma",),
    # r = 1 leaves no job room: nothing is drawn.
    "dcloud-fig5": (
        "workload.deadline_ratio.mean",
        "workload.deadline_ratio.sigma",
    ),
    "dcloud-fig6": (_BANDWIDTH,),
    "dcloud-fig7": ("topology.oversubscription",),
    "dcloud-fig8": ("workload.per_hour",),
    "dcloud-fig9": ("workload.kind", _COUNT),
    "dcloud-bl": ("workload.per_hour",),
    "dcloud-requests": ("topology.oversubscription",),
    "dcloud-revenue": (_BANDWIDTH,),
    "dcloud-room": ("workload.deadline_ratio.mean",),
    "dcloud-least": ("workload.kind", _COUNT),
    "dcloud-splits": ("topology.oversubscription",),
    "dcloud-halves": ("workload.per_hour",),
    "dcloud-index": ("workload.per_hour", "policies.dcloud.gamma"),
    "dcloud-profiles": (
        "policies.dcloud.gamma",
        "policies.dcloud.best_effort_servers",
        *_ERRORS,
    ),
    "dcloud-fig10-sharing-live": ("enforcement",),
    "dcloud-fig10-fat-tree-live": ("topology.kind",),
    "dcloud-fig10-fat-tree-sharing-live": ("enforcement", "topology.kind"),
    "dcloud-fig11-fat-tree-live": ("topology.kind",),
    "jsa-fig4a": (_COUNT,),
    "jsa-fig4b": ("workload.vms",),
    "jsa-fig4c": ("workload.deadline_factor",),
    "jsa-fig4d": ("workload.speedup",),
    "jsa-deadlines": ("workload.deadline_slack",),
    "jsa-fig5a-live": (_COUNT,),
    "jsa-fig5b-live": ("workload.vms",),
    "jsa-fig5c-live": ("workload.deadline_factor",),
    "jsa-fig5d-live": ("workload.speedup",),
    "jsa-interpretations": (_COUNT,),
    "jsa-large-interpretations": ("workload.vms",),
    "adaba-fig4": ("embedder", _BANDWIDTH),
    "adaba-fig5": ("embedder", *_LOGS),
    "adaba-interpretations": ("embedder", _BANDWIDTH),
    "adaba-anywhere": ("embedder", _BANDWIDTH),
    "adaba-log-interpretations": ("embedder", *_LOGS),
    "adaba-fig4-live": ("embedder",),
    "bgmbf-fig6": _LOGS,
    "bgmbf-fig7": _LOGS,
    "bgmbf-fig8": _LOGS,
    "bgmbf-interpretations": _LOGS,
    "cmbf-fig3": (_LOAD,),
    "cmbf-fig4": (_LOAD, *_MODELS),
    "cmbf-cpu-estimate": (
        _LOAD,
        *_MODELS,
        "workload.cpu.error",
        "policies.amcbf.cpu",
    ),
    "cmbf-migration-cost": (
        _LOAD,
        *_MODELS,
        "policies.amcbf.migration_cost",
    ),
    "cmbf-capacity": (_LOAD, *_MODELS, "workload.cpu.low"),
    "cmbf-waiting": (
        _LOAD,
        *_MODELS,
        "workload.overestimate",
        "policies.easy.estimates",
    ),
    "mbfcbs-fig4": (*_LEASES, *_DEFAULT_OF_HAIZEA),
    "mbfcbs-fig5": (*_LEASES, *_DEFAULT_OF_HAIZEA),
    "mbfcbs-leases-live": (*_LEASES, *_DEFAULT_OF_HAIZEA),
    "mbfcbs-fig6": ("workload.advance", "workload.immediate"),
    "mbfcbs-shares": ("workload.advance", "workload.immediate"),
    "mbfcbs-fig7": _LEASES,
    "mbfcbs-fig8": _LEASES,
    "mbfcbs-fig9": _LEASES,
    "mbfcbs-fig10": _LEASES,
    "mbfcbs-fig11": _LEASES,
    "mbfcbs-priority": _LEASES,
}

_FIGURES_10 = (
    "dcloud-fig10-live",
    "dcloud-fig10-fat-tree-live",
    "dcloud-fig10-sharing-live",
    "dcloud-fig10-fat-tree-sharing-live",
)
_TREES = (
    "dcloud-fig10-live",
    "dcloud-fig10-sharing-live",
    "dcloud-fig11-live",
)
_FIGURES_11 = ("dcloud-fig11-live", "dcloud-fig11-fat-tree-live")
_FIGURES_5 = (
    "jsa-fig5a-live",
    "jsa-fig5b-live",
    "jsa-fig5c-live",
    "jsa-fig5d-live",
)
_MACHINES = (*_FIGURES_5, "jsa-interpretations")
_SMALL = ("mbfcbs-fig4", "mbfcbs-fig5", "mbfcbs-leases-live")

# Settings that the paper itself has otherwise in some figures, and those
# that this project's own figures have otherwise.
OTHERWISE = (
    Otherwise(
        _TREES,
        ("topology.fanout", "topology.oversubscription"),
        "Section V: 16 servers in three layers, every link 1 Gbit/s, 4:1",
    ),
    Otherwise(
        (*_FIGURES_10, *_FIGURES_11),
        ("topology.slots_per_server",),
        "Section V: two VMs on a server",
    ),
    Otherwise(
        _FIGURES_10, ("workload.kind",), "two programs, and nothing drawn"
    ),
    Otherwise(
        _FIGURES_11,
        (
            _BANDWIDTH,
            "workload.vms.mean",
            "workload.per_hour",
            "workload.night_factor",
        ),
        "Section V: 10 jobs an hour of 5 VMs and 500 Mbit/s on average",
    ),
    Otherwise(
        ("dcloud-charging",),
        ("topology.fanout",),
        "one tenant alone, for whom 1,000 servers are as good",
    ),
    Otherwise(
        ("dcloud-revenue",),
        ("topology.fanout", "workload.vms.mean", "workload.per_hour"),
        "placing exactly takes minutes a run on 8,000 servers",
    ),
    Otherwise(
        ("dcloud-requests", "dcloud-room"),
        ("workload.deadline_ratio.mean", "workload.deadline_ratio.rule"),
        "the defaults of the other figures, written out",
    ),
    Otherwise(
        _MACHINES,
        ("topology.fanout", "topology.slots_per_server"),
        "Section V: 24 machines of one slot in four racks",
    ),
    Otherwise(
        ("jsa-interpretations",),
        ("workload.vms", "workload.largest"),
        "the VMs of the live figures' jobs, and the long ones that these leave out",
    ),
    Otherwise(
        ("adaba-fig4", "adaba-interpretations", "adaba-anywhere"),
        (
            "workload.kind",
            "workload.bandwidth.rule",
            "workload.shortest",
        ),
        "Section 5.3.1: random jobs whose mean bandwidth is set, and no log",
    ),
    Otherwise(
        ("bgmbf-kth-live",),
        (_BANDWIDTH,),
        "the mean that the cap of 455 Mbit/s gives, written out",
    ),
    Otherwise(
        _SMALL,
        (
            "topology.nodes",
            "topology.slots_per_server",
            "topology.memory_per_server",
            "workload.memory",
            "workload.mix",
            "workload.sizes",
        ),
        (
            "Section 5.1: four hosts of four cores; equal shares of the types "
            "as in Table 1, and the VMs of Table 2"
        ),
    ),
    Otherwise(
        ("mbfcbs-fig6", "mbfcbs-shares"),
        ("topology.nodes", *_LEASES),
        "100 leases: a load of 1.5 for five of the hosts",
    ),
)

# Settings that the live network forces on live figures.
LIVE_ONLY = (
    Otherwise(
        ("dcloud-fig11-fat-tree-live",),
        ("workload.hours",),
        "a third of the day, for a third of the wall time",
    ),
    Otherwise(
        _FIGURES_5,
        ("workload.largest",),
        "24 machines of one slot have no room for 15 to 35 VMs a job",
    ),
    Otherwise(
        ("jsa-fig5a-live", "jsa-fig5c-live", "jsa-fig5d-live"),
        ("workload.vms",),
        "24 machines of one slot have no room for 15 to 35 VMs a job",
    ),
    Otherwise(
        ("jsa-fig5b-live", "jsa-fig5c-live", "jsa-fig5d-live"),
        (_COUNT,),
        "24 machines in place of 1,600",
    ),
    Otherwise(
        _FIGURES_5,
        ("workload.longest",),
        "in the end a run would wait for one job of 13 hours",
    ),
    Otherwise(
        ("adaba-fig4-live", "bgmbf-kth-live"),
        ("topology.network",),
        "packets take one path: a controller cannot add up parallel links",
    ),
    Otherwise(
        ("adaba-fig4-live", "bgmbf-kth-live"),
        ("topology.k", "topology.slots_per_server"),
        "16 servers in place of 54, with as many VMs as one machine plays",
    ),
    Otherwise(
        ("adaba-fig4-live",),
        (_COUNT, "workload.mean_vms"),
        "64 slots in place of 432, and minutes of wall time",
    ),
    Otherwise(
        ("adaba-fig4-live",),
        (_LOAD,),
        "at 0.5 four embedders on 64 slots accept the same jobs, all but one",
    ),
    Otherwise(
        ("adaba-fig4-live",),
        ("workload.kind", _BANDWIDTH, "workload.bandwidth.rule"),
        "Figure 4's jobs, at one of its mean bandwidths",
    ),
    Otherwise(
        ("adaba-fig4-live", "bgmbf-kth-live"),
        ("workload.shortest",),
        "what is shorter cannot be timed on the wire",
    ),
    Otherwise(
        ("bgmbf-kth-live",),
        ("workload.first", "workload.longest"),
        "36 jobs that end within minutes of wall time",
    ),
    Otherwise(
        ("bgmbf-kth-live",),
        ("workload.processes_per_vm",),
        "a few VMs of 10 Mbit/s cost a machine less than many of 3",
    ),
    Otherwise(
        ("bgmbf-kth-live",),
        (_LOAD,),
        "at 0.5 the same jobs would take nearly three times the wall time",
    ),
    Otherwise(
        ("bgmbf-kth-live",),
        (
            "policies.bgmbf.migration_cost",
            "policies.bgmbf-sdf.migration_cost",
        ),
        "agents that move take wall time: three minutes of the log",
    ),
    Otherwise(
        ("cmbf-fig1-live", "cmcbf-fig2-live", "cmbf-interference-live"),
        ("topology.nodes", "workload.kind"),
        "the paper's example, or one node, and nothing drawn",
    ),
    Otherwise(
        ("cmbf-fig1-live",),
        ("policies.cmbf.migration_cost", "policies.ambf.migration_cost"),
        "the example's migrations cost nothing",
    ),
    Otherwise(
        ("cmcbf-fig2-live",),
        ("policies.cmcbf.migration_cost", "policies.amcbf.migration_cost"),
        "the example's migrations cost nothing",
    ),
    Otherwise(
        ("cmcbf-fig2-live",),
        ("interference.loss", "interference.efficiency"),
        "in the example both tiers have enough capacity",
    ),
    Otherwise(
        ("cmbf-interference-live",),
        ("policies.cmcbf.migration_cost", "policies.cmcbf.cpu"),
        "two VMs on a node, no migration, and no choice of the node",
    ),
    Otherwise(
        ("mbfcbs-leases-live",),
        ("workload.margin",),
        "VMs take wall time to start and to end",
    ),
)

# Figures whose interpretation changed before results named what was played:
# BL's and PS-P's flows, deadlines at r̄ = 1, EDF's queue, bandwidths. Their
# results of that time are old.
REVISED = (
    "dcloud-fig5",
    "dcloud-fig6",
    "dcloud-fig7",
    "dcloud-fig8",
    "dcloud-fig9",
    "dcloud-fig11-live",
    "jsa-fig4a",
    "jsa-fig4b",
    "jsa-fig4c",
    "jsa-fig4d",
    *_FIGURES_5,
)
