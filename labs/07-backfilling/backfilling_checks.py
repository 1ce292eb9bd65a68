"""Checks of lab 7: FCFS, EASY, CMBF and AMBF, two tiers, and what the kernel makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from testbed.events import JobEnded, JobMigrated, JobPreempted, JobResumed, JobStarted
from testbed.labs.checking import Check, Margin, Wrong, as_call, for_all, list_of, number_of
from testbed.labs.live_runs import played
from testbed.labs.submission import Submission
from testbed.record.reading import RecordedRun

FILE = "backfilling.py"
Job = dict[str, Any]
Jobs = list[Job]
Spans = dict[str, list[list[float]]]
Decide = Callable[[Jobs, Jobs, int], list[int]]

NODES = 6
FIG_1 = ((1, 20), (2, 5), (6, 5), (4, 5), (2, 15), (1, 10))
"""J1 to J6 of the paper's example: nodes and minutes, all at minute 0."""
THRESHOLD = 0.96

# -- what is right, in other ways than a scheduler would find it


def used(jobs: Sequence[Job]) -> int:
    return sum(job["nodes"] for job in jobs)


def numbers(jobs: Sequence[Job]) -> list[int]:
    return sorted(job["job"] for job in jobs)


def by_arrival(jobs: Sequence[Job]) -> Jobs:
    return sorted(jobs, key=lambda job: int(job["job"]))


def first_fit(jobs: Sequence[Job], nodes: int) -> Jobs:
    """Jobs that fit when each in turn takes its nodes if they are left."""
    fit: Jobs = []
    for job in jobs:
        if job["nodes"] <= nodes - used(fit):
            fit.append(job)
    return fit


def runs_in_cmbf(queue: Jobs, running: Jobs, nodes: int) -> list[int]:
    """A job runs if the nodes that earlier ones leave are enough: all that CMBF comes to."""
    return numbers(first_fit(by_arrival([*queue, *running]), nodes))


def runs_in_ambf(queue: Jobs, running: Jobs, nodes: int) -> list[int]:
    """The head as in CMBF; all others if enough nodes are idle."""
    every, runs = by_arrival([*queue, *running]), set(numbers(running))
    for job in every:
        now = [one for one in every if one["job"] in runs]
        if job["job"] in runs:
            continue
        earlier = [one for one in now if one["job"] < job["job"]]
        later = [one for one in now if one["job"] > job["job"]]
        is_head = all(one["job"] in runs for one in every if one["job"] < job["job"])
        room = nodes - used(earlier) - job["nodes"]
        if used(later) <= room:
            runs.add(job["job"])
        elif is_head and room >= 0:
            runs -= {*numbers(later)} - {*numbers(first_fit(later, room))}
            runs.add(job["job"])
    return sorted(runs)


def minutes(jobs: Sequence[Job], nodes: int, decide: Decide) -> Spans:
    """Jobs that run in each minute, decided anew in each of them."""
    left = {job["job"]: job["length"] for job in jobs}
    spans: Spans = {str(number): [] for number in left}
    runs: list[int] = []
    now = 0
    while any(left.values()):
        there = [job for job in jobs if job["arrives"] <= now and left[job["job"]]]
        running = [job for job in there if job["job"] in runs]
        runs = decide([job for job in there if job not in running], running, nodes)
        for number in runs:
            spent = spans[str(number)]
            if spent and spent[-1][1] == now:
                spent[-1][1] = now + 1
            else:
                spent.append([now, now + 1])
            left[number] -= 1
        runs = [number for number in runs if left[number]]
        now += 1
    return spans


def fig_1() -> Jobs:
    shapes = enumerate(FIG_1, start=1)
    return [{"job": n, "nodes": s, "length": length, "arrives": 0} for n, (s, length) in shapes]


# -- random jobs


SIZES = st.integers(1, NODES)
LENGTHS = st.integers(1, 12)


def jobs_of(shapes: Sequence[tuple[int, int, int]]) -> Jobs:
    """Jobs in order of arrival from sizes, lengths and the time since the one before."""
    found: Jobs = []
    arrives = 0
    for number, (nodes, length, since) in enumerate(shapes, start=1):
        arrives += since
        found.append({"job": number, "nodes": nodes, "length": length, "arrives": arrives})
    return found


JOBS = st.lists(
    st.tuples(SIZES, LENGTHS, st.sampled_from((0, 0, 1, 3))), min_size=1, max_size=8
).map(jobs_of)


@st.composite
def states(draw: st.DrawFn) -> tuple[Jobs, Jobs]:
    """A queue and running jobs within the nodes; any of them may have arrived first."""
    jobs = [{"job": n, "nodes": draw(SIZES)} for n in range(1, draw(st.integers(2, 8)))]
    running = by_arrival(first_fit(draw(st.permutations(jobs)), draw(st.integers(0, NODES))))
    return [job for job in jobs if job not in running], running


@st.composite
def planned(draw: st.DrawFn) -> tuple[Jobs, Jobs, int]:
    """The same with lengths, the ends of those that run, and the time."""
    queue, running = draw(states())
    now = draw(st.integers(0, 9))
    waiting = [{**job, "length": draw(LENGTHS)} for job in queue]
    return waiting, [{**job, "ends": now + draw(LENGTHS)} for job in running], now


# -- pure


def _jobs(submission: Submission, look: str, function: str, *arguments: Any) -> list[int]:
    """Numbers of jobs that a function returns, sorted; each once. Raises Wrong."""
    call = as_call(function, *arguments)
    found = sorted(list_of(submission.call(FILE, function, *arguments), int, call, look))
    known = {job["job"] for jobs in arguments if isinstance(jobs, list) for job in jobs}
    if len(set(found)) < len(found) or not known.issuperset(found):
        raise Wrong(f"{call} returned {found}", f"numbers of its jobs, each once: {known}", look)
    return found


def _spans(value: object, jobs: Sequence[Job], call: str, look: str) -> Spans:
    """A student's schedule. Raises Wrong."""
    names = sorted(str(job["job"]) for job in jobs)
    if not isinstance(value, dict) or sorted(value) != names:
        raise Wrong(f"{call} returned {value!r}", f"a dict with the jobs {', '.join(names)}", look)
    for name, spans in value.items():
        for span in list_of(spans, list, f"{call}, job {name},", look):
            if len(list_of(span, (int, float), f"{call}, job {name},", look)) != 2:
                raise Wrong(f"{call} has {span!r} for job {name}", "[start, end]", look)
    return value


def _first_difference(got: Spans, expected: Spans) -> str | None:
    return next((name for name in sorted(expected) if got[name] != expected[name]), None)


def the_example_by_hand(submission: Submission) -> None:
    look = "README.md, 'By hand'"
    got, decisions = submission.call(FILE, "by_hand"), (runs_in_cmbf, runs_in_ambf)
    if not isinstance(got, dict) or sorted(got) != ["ambf", "cmbf"]:
        raise Wrong(f"by_hand() returned {got!r}", "a dict with cmbf and ambf", look)
    for policy, decide in zip(("cmbf", "ambf"), decisions, strict=True):
        spans = _spans(got[policy], fig_1(), f"by_hand(), {policy},", look)
        name = _first_difference(spans, minutes(fig_1(), NODES, decide))
        if name is not None:
            seen = f"by_hand() has J{name} run at {spans[name]} in {policy.upper()}"
            raise Wrong(seen, "what its rule for the nodes of later jobs leads to", look)


def fcfs_waits_for_the_head(submission: Submission) -> None:
    look = "README.md, 'First come, first served'"

    def holds(example: tuple[Jobs, Jobs]) -> None:
        queue, running = example
        got = _jobs(submission, look, "fcfs", queue, running, NODES)
        heads = [queue[:n] for n in range(len(queue) + 1)]
        expected = numbers([h for h in heads if used(h) <= NODES - used(running)][-1])
        if got != expected:
            call = as_call("fcfs", queue, running, NODES)
            raise Wrong(f"{call} returned {got}", f"{expected}", look)

    for_all(states(), holds)


def earliest(head: Job, busy: Sequence[Job], now: int) -> int:
    """When so many nodes will be free, by the ends that are known."""
    times = sorted({now, *(job["ends"] for job in busy)})
    free = (
        at for at in times if NODES - used([j for j in busy if j["ends"] > at]) >= head["nodes"]
    )
    found: int = next(free)
    return found


def easy_never_delays_the_head(submission: Submission) -> None:
    look = "README.md, 'EASY'"

    def holds(jobs: Jobs) -> None:
        shadows: dict[int, int] = {}
        for now, queue, running, started in _events(submission, look, jobs):
            if used(running) + used(started) > NODES:
                seen = f"easy(…) starts {numbers(started)} at {now} beside {numbers(running)}"
                raise Wrong(f"{seen}, of the jobs {jobs}", f"at most {NODES} nodes in use", look)
            busy = [*running, *({**job, "ends": now + job["length"]} for job in started)]
            waiting = [job for job in queue if job not in started]
            for job in started:
                if job["job"] in shadows and now > shadows[job["job"]]:
                    seen = f"job {job['job']} starts at {now}, of the jobs {jobs}"
                    raise Wrong(seen, f"{shadows[job['job']]}, as when it became the head", look)
            if waiting:
                head = waiting[0]
                before = [job for job in busy if job in running or job["job"] < head["job"]]
                shadows.setdefault(head["job"], earliest(head, before, now))
                shadow = earliest(head, busy, now)
                if shadow > shadows[head["job"]]:
                    seen = f"easy(…) starts {numbers(started)} at {now}, of the jobs {jobs}"
                    why = f"delays the head {head['job']} from {shadows[head['job']]} to {shadow}"
                    raise Wrong(f"{seen}, which {why}", "jobs that do not delay it", look)

    for_all(JOBS, holds, number=80)


def _events(
    submission: Submission, look: str, jobs: Jobs
) -> Iterator[tuple[int, Jobs, Jobs, Jobs]]:
    """Each instant at which something arrives or ends: queue, running and started jobs."""
    running: Jobs = []
    done: set[int] = set()
    now = 0
    while len(done) < len(jobs):
        done |= {job["job"] for job in running if job["ends"] <= now}
        running = [job for job in running if job["job"] not in done]
        busy = {job["job"] for job in running}
        queue = [job for job in jobs if job["arrives"] <= now and job["job"] not in done | busy]
        plain = [{key: job[key] for key in ("job", "nodes", "length")} for job in queue]
        start = _jobs(submission, look, "easy", plain, running, NODES, now)
        started = [job for job in queue if job["job"] in start]
        if len(started) < len(start):
            raise Wrong(f"easy(…) starts {start}", f"jobs of the queue {numbers(queue)}", look)
        yield now, queue, running, started
        running = [*running, *({**job, "ends": now + job["length"]} for job in started)]
        times = [job["ends"] for job in running]
        times += [job["arrives"] for job in jobs if job["arrives"] > now]
        if not times and queue:
            seen = f"easy(…) starts nothing on idle nodes, of the jobs {jobs}"
            raise Wrong(seen, "the head, which always fits", look)
        now = min(times, default=now)


def easy_backfills_what_it_can(submission: Submission) -> None:
    look = "README.md, 'EASY'"

    def holds(example: tuple[Jobs, Jobs, int]) -> None:
        queue, running, now = example
        got = _jobs(submission, look, "easy", queue, running, NODES, now)
        expected = numbers(_easy(queue, running, now))
        if got != expected:
            call = as_call("easy", queue, running, NODES, now)
            raise Wrong(f"{call} returned {got}", f"{expected}", look)

    for_all(planned(), holds, number=300)


def _easy(queue: Jobs, running: Jobs, now: int) -> Jobs:
    """Each job in turn, if with it running the head could start no later than without."""
    started: Jobs = []
    busy, head = running, None
    for job in queue:
        more = [*busy, {**job, "ends": now + job["length"]}]
        if used(more) > NODES:
            head = head or job
        elif head is None or earliest(head, more, now) <= earliest(head, busy, now):
            started.append(job)
            busy = more
    return started


LATER = st.lists(SIZES, min_size=1, max_size=6).map(
    lambda sizes: [{"job": n, "nodes": size} for n, size in enumerate(sizes, start=2)]
)


def victims_are_few_and_late(submission: Submission) -> None:
    look = "README.md, 'Whom CMBF preempts'"

    def holds(example: tuple[Jobs, int]) -> None:
        later = example[0]
        needed = min(example[1], used(later))
        call = as_call("victims", later, needed)
        got = _jobs(submission, look, "victims", later, needed)
        freed = used([job for job in later if job["job"] in got])
        if freed < needed:
            raise Wrong(f"{call} returned {got}: {freed} nodes", f"{needed} nodes", look)
        spare = [job["job"] for job in later
                 if job["job"] in got and freed - job["nodes"] >= needed]  # fmt: skip
        if spare:
            seen = f"{call} returned {got}, of which {spare[0]} is not needed"
            raise Wrong(seen, "none that can be spared", look)
        stay = first_fit(later, used(later) - needed)
        expected = [job["job"] for job in later if job not in stay]
        if got != expected:
            raise Wrong(f"{call} returned {got}", f"{expected}", look)

    for_all(st.tuples(LATER, st.integers(1, 12)), holds, number=200)


def _decides(
    submission: Submission, look: str, function: str, decide: Decide, *, head_only: bool
) -> None:
    def holds(example: tuple[Jobs, Jobs]) -> None:
        queue, running = example
        call = as_call(function, queue, running, NODES)
        got = _jobs(submission, look, function, queue, running, NODES)
        every = by_arrival([*queue, *running])
        runs = [job for job in every if job["job"] in got]
        if used(runs) > NODES:
            seen = f"{call} returned {got}: {used(runs)} nodes"
            raise Wrong(seen, f"at most {NODES}", look)
        started = [job["job"] for job in queue if job["job"] in got]
        gone = [job["job"] for job in running if job["job"] not in got]
        earlier = [number for number in gone if not any(s < number for s in started)]
        if earlier:
            seen = f"{call} returned {got}: job {earlier[0]} goes, and nobody earlier starts"
            raise Wrong(seen, "preemption of later jobs alone", look)
        expected = decide(queue, running, NODES)
        if got != expected:
            raise Wrong(f"{call} returned {got}", f"{expected}", look)

    for_all(states(), holds, number=300 if head_only else 200)


def cmbf_is_algorithm_1(submission: Submission) -> None:
    _decides(submission, "README.md, 'CMBF'", "cmbf", runs_in_cmbf, head_only=False)


def ambf_is_for_the_head(submission: Submission) -> None:
    _decides(submission, "README.md, 'AMBF'", "ambf", runs_in_ambf, head_only=True)


def work_is_kept(submission: Submission) -> None:
    look = "README.md, 'A whole schedule'"

    def holds(jobs: Jobs) -> None:
        call = as_call("schedule", jobs, NODES)
        got = _spans(submission.call(FILE, "schedule", jobs, NODES), jobs, "schedule(…)", look)
        for job in jobs:
            spans = got[str(job["job"])]
            ran = sum(end - start for start, end in spans)
            if ran != job["length"]:
                seen = f"{call} has job {job['job']} run at {spans}, {ran:g} in all"
                raise Wrong(seen, f"its length, {job['length']}", look)
        expected = minutes(jobs, NODES, runs_in_cmbf)
        name = _first_difference(got, expected)
        if name is not None:
            raise Wrong(f"{call} has job {name} run at {got[name]}", f"{expected[name]}", look)

    holds(fig_1())
    for_all(JOBS, holds, number=100)


FIG_2 = (1, 2, 2, 3, 1, 1, 2, 5, 4, 1)
"""Nodes of J1 to J10 in the example of the two tiers, on five nodes."""
FIG_2_STEPS = (
    (0, (), (1, 2, 3), (4, 5)),
    (5, (2,), (1, 3, 5, 6), (7,)),
    (10, (1, 3), (4, 5, 6), (7, 10)),
    (12, (7,), (4, 5, 6), (10,)),
    (15, (4,), (5, 6, 10), ()),
    (20, (6,), (5, 9), (10,)),
    (25, (5, 9, 10), (8,), ()),
)
"""Minute, jobs that end, foreground and background after it."""


def tiers_of_the_example(submission: Submission) -> None:
    look = "README.md, 'Two tiers'"
    jobs = [{"job": n, "nodes": size, "cpu": 1.0 if size == 1 else 0.45}
            for n, size in enumerate(FIG_2, start=1)]  # fmt: skip
    state: tuple[Jobs, Jobs, Jobs] = jobs, [], []
    for minute, ended, ahead, behind in FIG_2_STEPS:
        queue, foreground, background = (
            [job for job in tier if job["job"] not in ended] for tier in state
        )
        got = _tiers(submission, look, queue, foreground, background, 5)
        if got != ([*ahead], [*behind]):
            seen = f"at minute {minute} tiers(…) returned {got[0]} and {got[1]} in the background"
            raise Wrong(seen, f"{[*ahead]} and {[*behind]}", look)
        every = by_arrival([*queue, *foreground, *background])
        state = (
            [job for job in every if job["job"] not in {*ahead, *behind}],
            [job for job in every if job["job"] in ahead],
            [job for job in every if job["job"] in behind],
        )


def _tiers(
    submission: Submission, look: str, queue: Jobs, foreground: Jobs, background: Jobs, nodes: int
) -> tuple[list[int], list[int]]:
    arguments = (queue, foreground, background, nodes)
    call, got = as_call("tiers", *arguments), submission.call(FILE, "tiers", *arguments)
    if not isinstance(got, dict) or sorted(got) != ["background", "foreground"]:
        raise Wrong(f"{call} returned {got!r}", "a dict with foreground and background", look)
    ahead, behind = (list_of(got[tier], int, call, look) for tier in ("foreground", "background"))
    return sorted(ahead), sorted(behind)


TieredJobs = list[tuple[int, int]]
TIERED = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from((45, 95, 96, 100))), min_size=1, max_size=9
)


def right_tiers(queue: Jobs, background: Jobs, foreground: Jobs) -> tuple[Jobs, Jobs]:
    """The foreground as in CMBF; in the background those already there first, then the queue."""
    every = by_arrival([*queue, *foreground, *background])
    foreground = first_fit(every, 5)
    room = 5 - used([job for job in foreground if job["cpu"] >= THRESHOLD])
    order = sorted(every, key=lambda job: (job not in background, job["job"]))
    return foreground, by_arrival(first_fit([job for job in order if job not in foreground], room))


def tiers_of_any_jobs(submission: Submission) -> None:
    look = "README.md, 'Two tiers'"

    def holds(example: tuple[TieredJobs, int, set[int]]) -> None:
        shapes, before, ended = example
        jobs = [{"job": n, "nodes": size, "cpu": cpu / 100}
                for n, (size, cpu) in enumerate(shapes, start=1)]  # fmt: skip
        # A state that the algorithm has led to, then ends and arrivals.
        tiers = right_tiers(jobs[:before], [], [])
        queue = [job for job in jobs if not any(job in tier for tier in tiers)]
        foreground, behind = ([j for j in tier if j["job"] not in ended] for tier in tiers)
        expected = right_tiers(queue, behind, foreground)
        got = _tiers(submission, look, queue, foreground, behind, 5)
        if got != (numbers(expected[0]), numbers(expected[1])):
            call = as_call("tiers", queue, foreground, behind, 5)
            seen = f"{call} returned {got[0]} and {got[1]}"
            raise Wrong(seen, f"{numbers(expected[0])} and {numbers(expected[1])}", look)

    # J3 would fit behind only in the place of J4.
    holds(([(2, 100), (3, 45), (4, 45), (3, 45)], 4, {1}))
    ended = st.sets(st.integers(1, 9), max_size=4)
    for_all(st.tuples(TIERED, st.integers(0, 9), ended), holds, number=200)


STEP_S = 0.005


def side_by_side(use: float, seconds: float, work: float, got: float) -> list[float]:
    """Ends of two jobs on a node, in small steps; ``got`` is the foreground's if both are busy."""
    left, ends = [seconds * use, work], [0.0, 0.0]
    now_s = 0.0
    while any(left):
        wants = [use if left[0] else 0.0, 1.0 if left[1] else 0.0]
        served = wants[0] if sum(wants) <= 1 else min(wants[0], got)
        now_s += STEP_S
        for tier, rate in enumerate((served, min(wants[1], 1 - served))):
            if left[tier]:
                left[tier] = max(0.0, left[tier] - rate * STEP_S)
                ends[tier] = now_s
                if left[tier] < 1e-9:
                    left[tier] = 0.0
    return ends


def beside_shares_a_node(submission: Submission) -> None:
    look = "README.md, 'Side by side'"
    uses, shares = st.sampled_from((0.25, 0.5, 0.75, 1.0)), st.sampled_from((0.5, 0.6, 0.8, 0.9))

    def holds(example: tuple[float, int, int, float]) -> None:
        call = as_call("beside", *example)
        ends = list_of(submission.call(FILE, "beside", *example), (int, float), call, look)
        expected = side_by_side(*example)
        pairs = zip(ends, expected, strict=False)
        if len(ends) != 2 or not all(abs(a - b) <= 0.05 for a, b in pairs):
            shown = f"[{expected[0]:.3g}, {expected[1]:.3g}]"
            raise Wrong(f"{call} returned {ends}", f"{shown}, as small steps add up", look)

    for_all(st.tuples(uses, st.integers(1, 8), st.integers(1, 8), shares), holds)


def shares_are_shares(submission: Submission) -> None:
    look = "README.md, 'Side by side'"

    def holds(weights: tuple[int, int]) -> None:
        got, other = (_share(submission, look, *pair) for pair in (weights, weights[::-1]))
        if not (0 <= got <= 1 and abs(got + other - 1) < 1e-9):
            seen = (
                f"{as_call('share', *weights)} and the other way round give {got:g} and {other:g}"
            )
            raise Wrong(seen, "shares that are 1 together", look)

    weights = st.integers(1, 10_000)
    for_all(st.tuples(weights, weights), holds, number=40)


def _share(submission: Submission, look: str, *weights: int) -> float:
    got = submission.call(FILE, "share", *weights)
    return number_of(got, as_call("share", *weights), look)


# -- on the wire


MINUTE_S = 0.8
"""Of the clock, for a minute of the example."""
EXAMPLE = f"""
topology: {{kind: flat, nodes: {NODES}}}
scale: {{time: {60 / MINUTE_S:g}, cpu: 0.1, instant: 60 s}}
policies: [{{name: cmbf, migration_cost: 0 s}}]
expect: {{fidelity: invalid}}
workload:
  kind: jobs
  jobs:
"""
"""Ends within 0.8 s of the clock are one instant: J1 and J5 end together."""


def live_spans(run: RecordedRun) -> Spans:
    """When each job ran, in minutes from the first start."""
    spans: Spans = {}
    first = next(event.t for event in run.file.events if isinstance(event, JobStarted))
    for event in run.file.events:
        at = (event.t - first) / 60
        match event:
            case JobStarted() | JobResumed() | JobMigrated():
                spans.setdefault(event.job_id.removeprefix("J"), []).append([at, at])
            case JobPreempted() | JobEnded():
                spans.setdefault(event.job_id.removeprefix("J"), [[at, at]])[-1][1] = at
    return spans


def the_example_as_scheduled(submission: Submission, _: None) -> list[Margin]:
    look = "README.md, 'On the machine'"
    answer = submission.call(FILE, "schedule", fig_1(), NODES)
    expected = _spans(answer, fig_1(), "schedule(…)", look)
    lines = (
        f"    - {{id: J{job['job']}, kind: compute, vms: {job['nodes']}, "
        f"duration: {job['length']} min}}\n"
        for job in fig_1()
    )
    with played(EXAMPLE + "".join(lines)) as (run,):
        seen = live_spans(run)
    off: list[float] = []
    for name, spans in expected.items():
        if len(seen.get(name, [])) != len(spans):
            live = [[round(at, 1) for at in span] for span in seen.get(name, [])]
            raise Wrong(f"live J{name} ran at {live} min", f"{spans}, as scheduled", look)
        pairs = zip(seen[name], spans, strict=True)
        off += [a - b for live_span, span in pairs for a, b in zip(live_span, span, strict=True)]
    starts = sum(map(len, expected.values()))
    return [
        Margin(
            f"of {starts} starts and ends each the latest, off schedule by", max(off), -2, 2, "min"
        ),
        Margin("the earliest by", min(off), -2, 2, "min"),
    ]


WEIGHTS = (10_000, 1)
NODE = """
topology: {kind: flat, nodes: 1}
policies: [{name: cmcbf, cpu: unknown, migration_cost: 0 s}]
expect: {fidelity: invalid}
workload:
  kind: jobs
  jobs:
    - {id: busy, kind: compute, vms: 1, duration: 2.5 s}
    - {id: busy-behind, kind: compute, vms: 1, duration: 1.5 s}
    - {id: half, kind: compute, vms: 1, cpu: 50 %, duration: 2.5 s, after: busy-behind}
    - {id: half-behind, kind: compute, vms: 1, duration: 2 s, after: busy-behind}
"""
"""One node, on which a foreground and a background job begin together, twice."""
PAIRS = {"busy": (1, 2.5, 1.5), "half": (0.5, 2.5, 2)}
"""What the first uses of the CPU, for so long, and the seconds of CPU of the second."""


def weights_on_the_machine(submission: Submission, _: None) -> list[Margin]:
    look = "README.md, 'Side by side'"
    got = _share(submission, look, *WEIGHTS)
    predicted: dict[str, float] = {}
    for name, pair in PAIRS.items():
        call = as_call("beside", *pair, got)
        ends = list_of(submission.call(FILE, "beside", *pair, got), (int, float), call, look)
        if len(ends) != 2 or min(ends) <= 0:
            raise Wrong(f"{call} returned {ends}", "two times", look)
        predicted |= zip((name, f"{name}-behind"), ends, strict=True)
    with played(NODE) as (run,):
        took = {row.job_id: row.measured_s for row in run.rows}
    margins = []
    for name, end in predicted.items():
        measured_s = took[name]
        if measured_s is None:
            raise Wrong(f"the job {name} did not finish", "an end", look)
        what = f"{name} takes, of your prediction,"
        margins.append(Margin(what, measured_s / end, 0.86, 1.14))
    return margins


CHECKS = (
    Check("by_hand() is the example's schedule", "pure", the_example_by_hand, 2),
    Check("fcfs() starts nobody before the head", "pure", fcfs_waits_for_the_head),
    Check("easy() never delays the head", "pure", easy_never_delays_the_head, 2),
    Check("easy() starts whoever does not delay the head", "pure", easy_backfills_what_it_can, 2),
    Check("victims() preempts the latest, and spares", "pure", victims_are_few_and_late, 2),
    Check("cmbf() gives each job the nodes of later ones", "pure", cmbf_is_algorithm_1, 2),
    Check("ambf() does so for the head alone", "pure", ambf_is_for_the_head, 2),
    Check("schedule() keeps the work that is done", "pure", work_is_kept, 2),
    Check("tiers() of the example", "pure", tiers_of_the_example),
    Check("tiers() of any jobs", "pure", tiers_of_any_jobs, 2),
    Check("beside() shares a node", "pure", beside_shares_a_node, 2),
    Check("share() and its other way round are 1", "pure", shares_are_shares),
    Check("jobs start, stop and end as schedule() says", "wire", the_example_as_scheduled, 2),
    Check("weights share a CPU as share() and beside() say", "wire", weights_on_the_machine, 2),
)
