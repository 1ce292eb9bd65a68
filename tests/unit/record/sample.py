"""Runs as a live or a simulated backend would have written them, made by hand for tests.

``main_example`` is DCloud's Fig. 10: two applications at five bandwidths on 16 servers. All
arithmetic here is the tests' own.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from typing import Any

from testbed import events

GBIT = 1_000_000_000
MBIT = 1_000_000
BANDWIDTHS = (750 * MBIT, 600 * MBIT, 450 * MBIT, 300 * MBIT, 150 * MBIT)
FIDELITY = (
    (
        "preflight",
        "the plan asks for 41% of what calibration reached",
        {"load": 0.41},
    ),
    (
        "processor idle",
        "in the busiest tenth the processors were idle for at most 46%",
        {"p10": 0.46},
    ),
    ("drops", "no packet was dropped between the VMs", {"packets": 0.0}),
)


def tree(
    fanout: tuple[int, ...] = (4, 2, 2),
    slots: int = 2,
    capacity: int = GBIT,
) -> dict[str, Any]:
    """A ``topology`` record of a tree whose links all have one capacity."""
    widths = [1]
    for f in fanout:
        widths.append(widths[-1] * f)
    widths.reverse()
    words = ["server", "rack", "aggregation", "core"]
    names, level, first = [], [], [0]
    for height, width in enumerate(widths):
        top = height == len(widths) - 1
        word = "core" if top else words[min(height, 2)]
        names += [word if top else f"{word} {i}" for i in range(width)]
        level += [height] * width
        first.append(first[-1] + width)
    lower, upper, parent, uplink = (
        [],
        [],
        [-1] * len(names),
        [-1] * len(names),
    )
    for height in range(len(widths) - 1):
        below = fanout[len(fanout) - 1 - height]
        for i in range(widths[height]):
            node, above = first[height] + i, first[height + 1] + i // below
            parent[node], uplink[node] = above, len(lower)
            lower.append(node)
            upper.append(above)
    return {
        "kind": "tree",
        "names": names,
        "level": level,
        "slots": [slots] * widths[0],
        "links": {
            "lower": lower,
            "upper": upper,
            "capacity_bps": [capacity] * len(lower),
        },
        "trees": [
            {"root": len(names) - 1, "parent": parent, "uplink": uplink}
        ],
    }


def hose(
    topology: dict[str, Any], vms_on: list[list[int]], rate: int
) -> list[list[int]]:
    """[[directed link, min(X, N-X)·rate]] in the only tree."""
    the_tree = topology["trees"][0]
    n = sum(count for _, count in vms_on)
    below: dict[int, int] = {}
    for server, count in vms_on:
        node = server
        while the_tree["parent"][node] >= 0:
            below[the_tree["uplink"][node]] = (
                below.get(the_tree["uplink"][node], 0) + count
            )
            node = the_tree["parent"][node]
    out = []
    for link in sorted(below):
        amount = min(below[link], n - below[link]) * rate
        if amount:
            out += [[2 * link, amount], [2 * link + 1, amount]]
    return out


def request(job_id: str, submit_s: float, **given: Any) -> dict[str, Any]:
    """A JobRequest in its ``dataclasses.asdict`` form."""
    return {
        "id": job_id,
        "submit_s": submit_s,
        "n_vms": 3,
        "bandwidth_bps": 750 * MBIT,
        "duration_s": 4.0,
        "deadline_s": None,
        "kind": "transfer",
        "pattern": "ring",
        "demand": None,
        "cpu_share": 0.0,
        "granted_bps": None,
        "true_duration_s": None,
        "application": None,
        "value": 0.0,
        "tags": [],
        "after": None,
        **given,
    }


class Recorder:
    """Keeps events in order of time and knows what is reserved for link samples."""

    def __init__(self, topology: dict[str, Any]) -> None:
        self.topology = topology
        self.items: list[tuple[float, int, events.Event]] = []

    def add(self, event: events.Event) -> None:
        self.items.append((event.t, len(self.items), event))

    def stream(self) -> list[events.Event]:
        return [
            event
            for _, _, event in sorted(self.items, key=lambda item: item[:2])
        ]

    def job(
        self,
        job: dict[str, Any],
        *,
        rate: int,
        vms_on: list[list[int]],
        ratio: float,
        launch_s: float = 0.02,
        end_s: float | None = None,
    ) -> tuple[float, float]:
        """One job from its submission to its end; returns when it started and ended."""
        t, job_id = job["submit_s"], job["id"]
        links = hose(self.topology, vms_on, rate)
        estimate = job["duration_s"] * max(1.0, job["bandwidth_bps"] / rate)
        root = self.topology["trees"][0]["root"]
        self.add(events.JobSubmitted(t, job))
        self.add(
            events.JobReserved(
                t, job_id, t, end_s, rate, estimate, root, vms_on, links
            )
        )
        started, measured = t + launch_s, estimate * ratio
        self.add(events.JobStarted(started, job_id, rate))
        for share in (0.25, 0.5, 0.75):
            self.add(
                events.JobProgress(
                    started + share * measured,
                    job_id,
                    round(share * rate * measured / 8),
                    share,
                )
            )
        ended = started + measured
        detail = {
            "payload_bytes": round(rate * measured / 8),
            "congestion_control": ["cubic"],
        }
        self.add(
            events.JobEnded(ended, job_id, "finished", "", measured, detail)
        )
        return started, ended


def _sample_links(
    recorder: Recorder, interval_s: float, noise: random.Random
) -> None:
    """Link samples of what runs: a full sender sends a hair less than its reservation."""
    stream = recorder.stream()
    n_directed = 2 * len(recorder.topology["links"]["lower"])
    held: dict[str, list[list[int]]] = {}
    booked: dict[str, list[list[int]]] = {}
    t, i, end = interval_s, 0, stream[-1].t
    while t < end:
        while i < len(stream) and stream[i].t <= t:
            event = stream[i]
            if isinstance(event, events.JobReserved):
                booked[event.job_id] = event.links
            elif isinstance(event, events.JobStarted):
                held[event.job_id] = booked[event.job_id]
            elif isinstance(event, events.JobEnded):
                held.pop(event.job_id, None)
            i += 1
        reserved = [0] * n_directed
        sent = [0.0] * n_directed
        for job_id, links in held.items():
            use = 0.97 if "index" not in job_id else 0.62
            for link, bps in links:
                reserved[link] += bps
                sent[link] += bps * use * noise.uniform(0.98, 1.0)
        rows = [
            [float(k), sent[k], float(reserved[k])]
            for k in range(n_directed)
            if reserved[k]
        ]
        recorder.add(events.LinkSample(t, interval_s, rows))
        t += interval_s


def main_example(
    *,
    labels: tuple[str, str] = ("sort", "index"),
    seed: int = 7,
    fidelity: str = "ok",
    policy: str = "scripted",
    samples: bool = True,
    backend: str = "live",
    worst_ratio: float | None = None,
) -> list[events.Event]:
    """Two applications, one after another at 750 … 150 Mbit/s each, side by side."""
    noise = random.Random(seed)
    topology = tree()
    recorder = Recorder(topology)
    ids = ("sort", "index")
    placements = ([[0, 1], [4, 1], [8, 1]], [[13, 1], [14, 2]])
    ratios = (
        (0.999, 0.9985, 0.9974, 0.9981, 0.9969),
        (0.997, 0.871, 0.726, 0.583, 0.462),
    )
    for which, (job_stem, label) in enumerate(
        zip(ids, labels, strict=True)
    ):
        t = 0.05 * which
        for rate, ratio in zip(BANDWIDTHS, ratios[which], strict=True):
            bad = (
                worst_ratio is not None
                and which == 0
                and rate == BANDWIDTHS[-1]
            )
            job = request(
                f"{job_stem}-{rate // MBIT}",
                t,
                application=label,
                granted_bps=rate,
                deadline_s=120.0 if which == 0 else None,
                cpu_share=0.3 * which,
                kind=("transfer", "demand")[which],
                demand=(None, [[1.0, 350 * MBIT]])[which],
            )
            _, ended = recorder.job(
                job,
                rate=rate,
                vms_on=placements[which],
                ratio=(worst_ratio or 1.0)
                if bad
                else ratio + noise.uniform(-0.001, 0.001),
                launch_s=0.0 if backend == "sim" else 0.02,
            )
            t = ended + 0.1
    if samples:
        _sample_links(recorder, 0.5, noise)
    end = recorder.stream()[-1].t
    for check, reason, figures in FIDELITY if backend != "sim" else ():
        level = fidelity if check == "processor idle" else "ok"
        recorder.add(
            events.FidelityNoted(end, level, check, reason, dict(figures))
        )
    return [
        events.RunStarted(
            0.0, "bandwidth-scaling", policy, backend, seed, topology
        ),
        *recorder.stream(),
        events.RunEnded(end, "completed", ""),
    ]


def simulated(
    n_jobs: int = 200, seed: int = 3, fanout: tuple[int, ...] = (4, 2, 4)
) -> list[events.Event]:
    """Many jobs on arrival or not at all: those that find no rack with room are rejected."""
    noise = random.Random(seed)
    topology = tree(fanout, slots=4)
    n_servers, per_rack = len(topology["slots"]), fanout[-1]
    free = [4] * n_servers
    ends: list[tuple[float, str, list[list[int]], float]] = []
    stream: list[events.Event] = [
        events.RunStarted(0.0, "poisson", "vc", "sim", seed, topology)
    ]

    def finish(until: float) -> None:
        while ends and ends[0][0] <= until:
            t, job_id, vms_on, measured = heapq.heappop(ends)
            for server, count in vms_on:
                free[server] += count
            stream.append(
                events.JobEnded(t, job_id, "finished", "", measured, {})
            )

    t = 0.0
    for number in range(n_jobs):
        t += noise.expovariate(1 / 20.0)
        finish(t)
        n, rate = noise.randint(2, 8), 50 * MBIT
        job = request(
            f"job-{number:05}",
            t,
            n_vms=n,
            bandwidth_bps=rate,
            duration_s=noise.uniform(60, 900),
            deadline_s=3600.0,
            application=noise.choice(["sort", "index", "serve"]),
        )
        stream.append(events.JobSubmitted(t, job))
        vms_on = _first_rack(free, n, per_rack)
        if vms_on is None:
            reason = f"no rack has {n} free slots"
            stream.append(
                events.JobEnded(t, job["id"], "rejected", reason, None, {})
            )
            continue
        for server, count in vms_on:
            free[server] -= count
        links, duration = hose(topology, vms_on, rate), job["duration_s"]
        root = topology["trees"][0]["root"]
        stream.append(
            events.JobReserved(
                t, job["id"], t, None, rate, duration, root, vms_on, links
            )
        )
        stream.append(events.JobStarted(t, job["id"], rate))
        end = t + duration
        heapq.heappush(ends, (end, job["id"], vms_on, end - t))
    finish(float("inf"))
    return [*stream, events.RunEnded(stream[-1].t, "completed", "")]


def _first_rack(
    free: list[int], n: int, per_rack: int
) -> list[list[int]] | None:
    for rack in range(len(free) // per_rack):
        servers = range(rack * per_rack, (rack + 1) * per_rack)
        if sum(free[s] for s in servers) >= n:
            vms_on, left = [], n
            for server in servers:
                count = min(left, free[server])
                if count:
                    vms_on.append([server, count])
                    left -= count
            return vms_on
    return None


def with_events(
    stream: Iterable[events.Event], kind: type[events.Event]
) -> list[int]:
    """Indices of all events of a kind."""
    return [i for i, event in enumerate(stream) if isinstance(event, kind)]


# ------------------------------------------------------------------ small runs of other policies


def sliding(policy: str = "dcloud") -> list[events.Event]:
    """Two jobs that each need the whole of server 0 and 1: the second is booked after the first."""
    topology = tree((2,), slots=2)
    rate, vms_on = 500 * MBIT, [[0, 2], [1, 2]]
    links, root = hose(topology, vms_on, rate), topology["trees"][0]["root"]
    ask = {
        "n_vms": 4,
        "bandwidth_bps": rate,
        "duration_s": 100.0,
        "deadline_s": 300.0,
    }
    return [
        events.RunStarted(0.0, "sliding", policy, "sim", 1, topology),
        events.JobSubmitted(0.0, request("early", 0.0, **ask)),
        events.JobReserved(
            0.0, "early", 0.0, 112.0, rate, 100.0, root, vms_on, links
        ),
        events.JobStarted(0.0, "early", rate),
        events.JobSubmitted(1.0, request("late", 1.0, **ask)),
        events.JobReserved(
            1.0, "late", 112.0, 224.0, rate, 100.0, root, vms_on, links
        ),
        events.JobEnded(100.0, "early", "finished", "", 100.0, {}),
        events.JobStarted(112.0, "late", rate),
        events.JobEnded(
            224.0,
            "late",
            "killed",
            "its reservation ended before it did",
            None,
            {},
        ),
        events.RunEnded(224.0, "completed", ""),
    ]


def preempting() -> list[events.Event]:
    """A job is rescaled, evicted for another, resumed, evicted again and migrated."""
    topology = tree((4,), slots=2)
    full, half, root = 400 * MBIT, 200 * MBIT, topology["trees"][0]["root"]
    here, there = [[0, 2], [1, 1]], [[2, 2], [3, 1]]
    ask = {"bandwidth_bps": full, "duration_s": 30.0}
    return [
        events.RunStarted(0.0, "preempting", "cmbf", "sim", 1, topology),
        events.JobSubmitted(0.0, request("low", 0.0, **ask)),
        events.JobReserved(
            0.0,
            "low",
            0.0,
            None,
            full,
            30.0,
            root,
            here,
            hose(topology, here, full),
        ),
        events.JobStarted(0.0, "low", full),
        events.JobRescaled(5.0, "low", half, hose(topology, here, half)),
        events.JobSubmitted(10.0, request("high", 10.0, **ask)),
        events.JobPreempted(10.0, "low", "for high"),
        events.JobReserved(
            10.0,
            "high",
            10.0,
            None,
            full,
            30.0,
            root,
            here,
            hose(topology, here, full),
        ),
        events.JobStarted(10.0, "high", full),
        events.JobEnded(40.0, "high", "finished", "", 30.0, {}),
        events.JobResumed(40.0, "low"),
        events.JobPreempted(45.0, "low", "to move"),
        events.JobMigrated(
            45.0, "low", "to move", root, there, hose(topology, there, half)
        ),
        events.JobEnded(77.5, "low", "finished", "", 47.5, {}),
        events.RunEnded(77.5, "completed", ""),
    ]


def two_tiers() -> list[events.Event]:
    """One node, two VMs on it: the one behind comes to the front when the other has left."""
    topology = tree((1,), slots=1)
    root, here = topology["trees"][0]["root"], [[0, 1]]
    ask = {"bandwidth_bps": 0, "duration_s": 30.0, "n_vms": 1}
    return [
        events.RunStarted(0.0, "two tiers", "cmcbf", "sim", 1, topology),
        events.JobSubmitted(0.0, request("front", 0.0, **ask)),
        events.JobReserved(
            0.0, "front", 0.0, None, 0, 30.0, root, here, []
        ),
        events.JobStarted(0.0, "front", 0),
        events.JobSubmitted(10.0, request("behind", 10.0, **ask)),
        events.JobWaits(
            10.0, "behind", "1 node asked, 0 free", ["front"], None
        ),
        events.JobReserved(
            15.0,
            "behind",
            15.0,
            None,
            0,
            30.0,
            root,
            here,
            [],
            "background",
        ),
        events.JobStarted(15.0, "behind", 0, "background"),
        events.JobEnded(30.0, "front", "finished", "", 30.0, {}),
        events.JobTierSwitched(30.0, "behind", "foreground"),
        events.JobEnded(57.5, "behind", "finished", "", 42.5, {}),
        events.RunEnded(57.5, "completed", ""),
    ]


def flat() -> list[events.Event]:
    """A cluster of nodes without links; nothing asks for bandwidth."""
    topology = {
        "kind": "flat",
        "names": ["server 0", "server 1", "cluster 0"],
        "level": [0, 0, 1],
        "slots": [1, 1],
        "links": {"lower": [], "upper": [], "capacity_bps": []},
        "trees": [
            {"root": 2, "parent": [2, 2, -1], "uplink": [-1, -1, -1]}
        ],
    }
    job = request(
        "a", 0.0, n_vms=2, bandwidth_bps=0, kind="compute", duration_s=20.0
    )
    return [
        events.RunStarted(0.0, "flat", "fcfs", "sim", 1, topology),
        events.JobSubmitted(0.0, job),
        events.JobReserved(
            0.0, "a", 0.0, None, 0, 20.0, 2, [[0, 1], [1, 1]], []
        ),
        events.JobStarted(0.0, "a", 0),
        events.JobEnded(20.0, "a", "finished", "", 20.0, {}),
        events.RunEnded(20.0, "completed", ""),
    ]


def queue(order: list[str]) -> list[events.Event]:
    """Jobs a and b, submitted in this order, started in the given one on servers of their own."""
    topology = tree((2,), slots=2)
    root = topology["trees"][0]["root"]
    ask = {"n_vms": 2, "bandwidth_bps": MBIT, "duration_s": 10.0}
    stream: list[events.Event] = [
        events.RunStarted(0.0, "queue", "fcfs", "sim", 1, topology),
        events.JobSubmitted(0.0, request("a", 0.0, **ask)),
        events.JobSubmitted(0.0, request("b", 0.0, **ask)),
    ]
    for server, job_id in enumerate(order):
        vms_on = [[server, 2]]
        stream += [
            events.JobReserved(
                0.0, job_id, 0.0, None, MBIT, 10.0, root, vms_on, []
            ),
            events.JobStarted(0.0, job_id, MBIT),
        ]
    stream += [
        events.JobEnded(10.0, j, "finished", "", 10.0, {})
        for j in ("a", "b")
    ]
    return [*stream, events.RunEnded(10.0, "completed", "")]


def eventful() -> list[events.Event]:
    """Jobs of every outcome, with classes, values and prices; one outside its band, one note."""
    stream = main_example(fidelity="suspect", worst_ratio=1.2)
    end = next(
        i
        for i, event in enumerate(stream)
        if isinstance(event, events.FidelityNoted)
    )
    t = stream[end].t
    vms_on = [[0, 2], [1, 1]]
    rate = 100 * MBIT
    topology = (
        stream[0].topology
        if isinstance(stream[0], events.RunStarted)
        else {}
    )
    links, root = hose(topology, vms_on, rate), topology["trees"][0]["root"]
    ask = {"bandwidth_bps": rate, "deadline_s": 9.0, "value": 2.5}
    no_room = request(
        "no-room", t, application="late", queue="batch", **ask
    )
    stopped = request(
        "stopped", t, application="sort", tags=[["class", "service"]], **ask
    )
    more = [
        events.JobSubmitted(t, no_room),
        events.JobEnded(
            t, "no-room", "rejected", "no rack has 3 free slots", None, {}
        ),
        events.JobSubmitted(t, stopped),
        events.JobReserved(
            t, "stopped", t, None, rate, 4.0, root, vms_on, links
        ),
        events.JobStarted(t, "stopped", rate),
        events.JobEnded(
            t, "stopped", "killed", "for somebody else", None, {}
        ),
    ]
    return [
        _priced(event) for event in [*stream[:end], *more, *stream[end:]]
    ]


def _priced(event: events.Event) -> events.Event:
    if isinstance(event, events.JobEnded) and event.outcome == "finished":
        event.detail["price"] = 1.25
        if event.job_id == "index-150":
            measured = {
                "received_bps": [149, 140, 148, 151],
                "counted_bps": [150, 148, 152, 153],
            }
            event.detail["iperf3"] = measured
    if isinstance(event, events.JobSubmitted) and event.job["id"].endswith(
        "-600"
    ):
        return events.JobSubmitted(
            event.t, {**event.job, "tags": [["class", "service"]]}
        )
    return event


def leases() -> list[events.Event]:
    """Two leases on a node with memory: one whose start has to come first, one preempted once."""
    topology = {
        "kind": "flat",
        "names": ["server 0", "cluster 0"],
        "level": [0, 1],
        "slots": [4],
        "links": {"lower": [], "upper": [], "capacity_bps": []},
        "trees": [{"root": 1}],
        "memory_mib": [4096],
    }
    ask = {
        "n_vms": 1,
        "bandwidth_bps": 0,
        "kind": "compute",
        "cores": 3,
        "memory_mib": 2048,
    }
    best = request("best", 0.0, duration_s=60.0, lease="best-effort", **ask)
    wanted = request(
        "wanted",
        1.0,
        duration_s=30.0,
        lease="advance",
        wanted_s=20.0,
        **ask,
    )
    on: list[list[int]] = [[0, 1]]
    return [
        events.RunStarted(0.0, "leases", "mbfcbs", "sim", 1, topology),
        events.JobSubmitted(0.0, best),
        events.JobReserved(0.0, "best", 0.0, 60.0, 0, 60.0, 1, on, []),
        events.JobStarted(0.0, "best", 0),
        events.JobSubmitted(1.0, wanted),
        events.JobShortened(
            1.0, "best", 20.0, "advance reservation wanted"
        ),
        events.JobReserved(1.0, "wanted", 20.0, 50.0, 0, 30.0, 1, on, []),
        events.JobPreempted(20.0, "best", "advance reservation wanted"),
        events.JobStarted(20.0, "wanted", 0),
        events.JobWaits(
            20.0, "best", "3 cores asked, 1 free", ["wanted"], 50.0
        ),
        events.JobEnded(50.0, "wanted", "finished", "", 30.0, {}),
        events.JobMigrated(
            50.0,
            "best",
            "there is room",
            1,
            on,
            [],
            "foreground",
            0.0,
            90.0,
        ),
        events.JobEnded(90.0, "best", "finished", "", 60.0, {}),
        events.RunEnded(90.0, "completed", ""),
    ]
