"""Every action of a policy on the live network: one network, one job at a time on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.demand import Command, Compute
from jobs.request import JobRequest
from testbed import events
from testbed.backends.emu.emulation import Emulation
from testbed.schedulers.actions import (
    Action,
    Kill,
    Migrate,
    Preempt,
    Reject,
    Rescale,
    Reserve,
    Resume,
    Start,
    SwitchTier,
)
from testbed.schedulers.policy import View
from testbed.spec.experiment import Scale
from tests.support.cgroup_time import cpu_s
from tests.support.control_groups import control_groups
from tests.support.scripted_run import (
    Does,
    ScriptedPolicy,
    SteppedPolicy,
    at,
    begun,
    ended,
    on,
    play,
    small_emulation,
)
from topologies.tree import tree

MBIT = 10**6
SWITCH = 4  # the only switch of four servers


@pytest.fixture(scope="module")
def emulation(
    make_prefix: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Emulation]:
    assert callable(make_prefix)
    folder: Path = tmp_path_factory.mktemp("logs")
    with small_emulation(
        tree([4], [1000 * MBIT], 1),
        make_prefix(),
        folder,
        namespaces_per_server=(2, 2, 2, 2),
    ) as up:
        yield up


def pair(name: str, duration_s: float = 2.0, **more: object) -> JobRequest:
    return JobRequest(name, 0.0, 2, 500 * MBIT, duration_s, **more)  # type: ignore[arg-type]


def whole(history: list[events.Event]) -> None:
    """It finished, and every byte of it arrived once.

    A machine that is busy makes everything late, never early: times have lower bounds below, and
    what they may not exceed is a time of the same run.
    """
    end = ended(history)
    assert end.outcome == "finished", end.reason
    assert (
        end.detail["received_bytes_raw"]
        == end.detail["volume_bytes_raw"]
        > 0
    )
    assert (
        end.detail["acknowledged_bytes_raw"]
        == end.detail["volume_bytes_raw"]
    )


def measured(history: list[events.Event]) -> float:
    taken = ended(history).measured_s
    assert taken is not None
    return taken


def later_by(one: list[events.Event], other: list[events.Event]) -> float:
    """Delay of the other's end against this one's, in s."""
    return begun(other) + measured(other) - begun(one) - measured(one)


def test_a_preempted_jobs_connections_outlive_another_job_on_its_nodes(
    emulation: Emulation,
) -> None:
    place = on(SWITCH, (0, 1), (1, 1))
    scripted = ScriptedPolicy(
        {
            "long": lambda _: [Start("long", place, 500 * MBIT)],
            "urgent": lambda _: [
                Preempt("long", "urgent"),
                Start("urgent", place, 500 * MBIT),
            ],
        },
        ends={"urgent": lambda _: [Resume("long")]},
    )
    urgent = JobRequest("urgent", 1.0, 2, 500 * MBIT, 2.0)
    histories = play(emulation, [pair("long", 4.0), urgent], scripted)
    whole(histories["long"])
    whole(histories["urgent"])
    # The same agents, on the same connections, to the end.
    assert "restarts" not in ended(histories["long"]).detail
    assert ended(histories["long"]).detail["exit_codes"] == [0, 0]
    # Four seconds on nodes; the time off them, two seconds at least, does not count.
    off_s = at(histories["long"], events.JobResumed) - at(
        histories["long"], events.JobPreempted
    )
    whole_s = ended(histories["long"]).t - at(
        histories["long"], events.JobReserved
    )
    assert off_s > 1.9
    assert 3.9 < measured(histories["long"]) < whole_s - off_s / 2


def test_a_job_whose_nodes_are_full_is_checkpointed_and_resumes_with_the_rest(
    emulation: Emulation,
) -> None:
    place = on(SWITCH, (0, 1), (1, 1))
    names = ["first", "second", "third"]

    def begin(at: int) -> object:
        before = [] if at == 0 else [Preempt(names[at - 1], names[at])]
        return lambda _: [*before, Start(names[at], place, 500 * MBIT)]

    scripted = ScriptedPolicy(
        {name: begin(at) for at, name in enumerate(names)},  # type: ignore[misc]
        ends={
            "third": lambda _: [Resume("second")],
            "second": lambda _: [Resume("first", cost_s=0.5)],
        },
    )
    jobs = [
        JobRequest("first", 0.0, 2, 500 * MBIT, 3.0),
        JobRequest("second", 1.0, 2, 500 * MBIT, 3.0),
        JobRequest("third", 2.0, 2, 500 * MBIT, 1.0),
    ]
    histories = play(emulation, jobs, scripted)
    for name in names:
        whole(histories[name])
    # Two namespaces a server, three jobs: the one that had waited longest had to go.
    assert ended(histories["first"]).detail["restarts"] == 1
    assert "restarts" not in ended(histories["second"]).detail
    # Three seconds of work and the cost: what it had done when it was checkpointed counts.
    assert measured(histories["first"]) > 3.4


def test_a_running_job_migrates_after_its_cost_with_nothing_sent_twice(
    emulation: Emulation,
) -> None:
    to = on(SWITCH, (2, 1), (3, 1))
    scripted = ScriptedPolicy(
        {
            "job": lambda _: [
                Start("job", on(SWITCH, (0, 1), (1, 1)), 500 * MBIT)
            ]
        },
        {1.0: lambda _: [Migrate("job", to, "to make room", cost_s=1.0)]},
    )
    histories = play(emulation, [pair("job", 3.0)], scripted)
    whole(histories["job"])
    # On nodes all the time, the cost of moving included; 0.2 s for what was on its way then.
    lasted_s = ended(histories["job"]).t - at(
        histories["job"], events.JobReserved
    )
    assert 3.9 < measured(histories["job"]) < lasted_s + 0.2
    assert [
        name[-2:] for name in ended(histories["job"]).detail["vms"]
    ] == [
        "v0",
        "v0",
    ]
    assert ended(histories["job"]).detail["vms"] == [
        f"{emulation.plan.prefix}-s{k}v0" for k in (2, 3)
    ]


def test_a_job_that_outlasts_its_reservation_moves_on_without_bandwidth(
    emulation: Emulation,
) -> None:
    reserved = on(SWITCH, (0, 1), (1, 1))
    best_effort = on(SWITCH, (2, 1), (3, 1))
    # Its 3 s of work at half of its bandwidth take 6; its reservation ends after 2.
    start = Start(
        "job", reserved, 250 * MBIT, 2.0, kill_at_end=True, ask_at_end=True
    )
    move = Migrate("job", best_effort, "it is late", best_effort=True)
    scripted = ScriptedPolicy(
        {"job": lambda _: [start]}, outlasts={"job": lambda _: [move]}
    )
    histories = play(emulation, [pair("job", 3.0)], scripted)
    whole(histories["job"])
    rescaled_s = at(histories["job"], events.JobRescaled)
    moved_s = at(histories["job"], events.JobMigrated)
    assert moved_s >= rescaled_s >= 2.0
    assert ended(histories["job"]).detail["vms"] == [
        f"{emulation.plan.prefix}-s{k}v0" for k in (2, 3)
    ]
    # At its own bandwidth, which is the most that it sends, 2 s are left.
    assert measured(histories["job"]) > 3.4


def test_a_job_is_rescaled_in_place(emulation: Emulation) -> None:
    scripted = ScriptedPolicy(
        {
            "job": lambda _: [
                Start("job", on(SWITCH, (0, 1), (1, 1)), 250 * MBIT)
            ]
        },
        {1.0: lambda _: [Rescale("job", 500 * MBIT)]},
    )
    histories = play(emulation, [pair("job", 3.0)], scripted)
    whole(histories["job"])
    # Half as fast until it was rescaled, then as fast as it may be: not in the
    # time that either rate would have taken all along. From the first byte on,
    # as what is measured: its event comes late on a busy machine.
    slow_s = at(histories["job"], events.JobRescaled) - begun(
        histories["job"]
    )
    fast_s = measured(histories["job"]) - slow_s
    assert measured(histories["job"]) > 3.45
    assert slow_s > 0
    assert 0.98 * (3.0 - slow_s / 2) < fast_s < 0.9 * 2 * (3.0 - slow_s / 2)


def test_an_advance_start_keeps_its_time_and_the_deadline_kills(
    emulation: Emulation,
) -> None:
    place, beside = on(SWITCH, (0, 1), (1, 1)), on(SWITCH, (2, 1), (3, 1))
    asked: list[float] = []

    def book(view: View) -> list[Action]:
        asked.append(view.now_s)
        return [
            Reserve(
                "later",
                place,
                500 * MBIT,
                view.now_s + 1.0,
                view.now_s + 3.0,
            )
        ]

    scripted = ScriptedPolicy(
        {"later": book, "one": lambda _: [], "two": lambda _: []},
        {
            0.0: lambda _: [Start("one", beside, 500 * MBIT)],
            # A second and a half for the start: a slow machine takes
            # half a second to make VMs and their agents.
            2.5: lambda _: [Kill("one", "its owner changed her mind")],
            3.5: lambda _: [Reject("two", "nobody wants it any more")],
        },
        since="later",
    )
    histories = play(
        emulation,
        [pair("later", 60.0), pair("one", 60.0), pair("two", 60.0)],
        scripted,
    )
    end = ended(histories["later"])
    assert (end.outcome, end.reason) == (
        "killed",
        "its reservation ended before it did",
    )
    assert ended(histories["one"]).reason == "its owner changed her mind"
    # Each in its turn: it starts 1 s after it was asked for, before what is
    # done at 2.5 s; it ends at 3 s, before what is done at 3.5 s.
    assert (
        asked[0] + 1.0
        <= at(histories["later"], events.JobStarted)
        <= ended(histories["one"]).t
    )
    assert asked[0] + 3.0 <= end.t <= ended(histories["two"]).t


def test_a_background_vm_gets_what_the_foreground_leaves_until_they_change_places(
    emulation: Emulation,
) -> None:
    """Two processes that never rest on one node with half a processor: 10,000 to 1.

    And both come and go while the other keeps the processor busy, which who is behind needs to get
    ready, and to die: neither keeps everybody else waiting.
    """
    place = on(SWITCH, (0, 1))
    emulation.cgroup.set_quota(0, 0.5)
    used: list[tuple[float, float]] = []

    def are_there() -> bool:
        # An emulated processor takes more than a tenth of a second to make a
        # VM's group.
        groups = [emulation.cgroup.account(0, vm) for vm in (0, 1)]
        return all(group.exists() for group in groups)

    def sample(*actions: Action) -> Does:
        def do(_: View) -> list[Action]:
            used.append(
                (
                    cpu_s(emulation.cgroup, 0, 0),
                    cpu_s(emulation.cgroup, 0, 1),
                )
            )
            return list(actions)

        return do

    change = (
        Preempt("ahead", "for the one behind"),
        SwitchTier("behind", "foreground"),
        Resume("ahead", tier="background"),
    )
    scripted = SteppedPolicy(
        {
            "ahead": Start("ahead", place, 0),
            "behind": Start("behind", place, 0, tier="background"),
        },
        are_there,
        [
            (0.1, sample()),
            (2.0, sample(*change)),
            (0.5, sample()),
            (2.0, sample(Kill("ahead", "its time is over"))),
            (0.1, lambda _: [Kill("behind", "so is its")]),
        ],
    )
    jobs = [
        JobRequest("ahead", 0.0, 1, 0, 300.0, demand=Compute()),
        JobRequest("behind", 0.0, 1, 0, 300.0, demand=Compute()),
    ]
    histories = play(emulation, jobs, scripted, Scale(rate=0.02, cpu=0.5))
    assert ended(histories["ahead"]).reason == "its time is over"
    assert ended(histories["behind"]).reason == "so is its"
    before, after = (
        tuple(now - was for was, now in zip(*samples, strict=True))
        for samples in (used[:2], used[2:])
    )
    assert before[0] > 20 * before[1]
    # Not 20 times at once: the kernel still owes something to the one that was ahead before (an
    # eighth of all was seen beside four busy processes).
    assert after[1] > 2 * after[0]


def test_a_job_in_the_background_of_another_is_done_when_that_one_is(
    emulation: Emulation,
) -> None:
    place = on(SWITCH, (0, 1))
    emulation.cgroup.set_quota(0, 0.5)
    scripted = ScriptedPolicy(
        {
            "ahead": lambda _: [Start("ahead", place, 0)],
            "behind": lambda _: [
                Start("behind", place, 0, tier="background")
            ],
        },
    )
    jobs = [
        JobRequest("ahead", 0.0, 1, 0, 2.0, demand=Compute()),
        JobRequest("behind", 0.0, 1, 0, 1.0, demand=Compute()),
    ]
    histories = play(emulation, jobs, scripted, Scale(rate=0.02, cpu=0.5))
    assert (
        ended(histories["ahead"]).outcome
        == ended(histories["behind"]).outcome
        == "finished"
    )
    # One second of work: nearly all of it is left then, but for what it did
    # before the one ahead came to work. All its time on its node is its time.
    alone_s = begun(histories["ahead"]) - begun(histories["behind"])
    left_s = 0.8 - max(0.0, alone_s)
    assert later_by(histories["ahead"], histories["behind"]) > left_s


RANKS = """
import os, socket, sys, time
rank, peers = int(os.environ["HOSENET_RANK"]), os.environ["HOSENET_PEERS"].split(",")
assert len(peers) == int(os.environ["HOSENET_SIZE"])
assert peers[rank] == os.environ["HOSENET_IP"]
assert os.getuid() != 0
listener = socket.create_server((peers[rank], 7000))
for peer in peers:
    while True:
        try:
            out = socket.create_connection((peer, 7000), 5)
            break
        except OSError:
            time.sleep(0.05)
    out.sendall(b"%d" % rank)
    out.close()
heard = sorted(int(listener.accept()[0].recv(9)) for _ in peers)
print("heard", heard)
sys.exit(heard != list(range(len(peers))))
"""


def command(name: str, script: str, n_vms: int = 3) -> JobRequest:
    return JobRequest(
        name,
        0.0,
        n_vms,
        500 * MBIT,
        2.0,
        demand=Command(words=("/usr/bin/python3", "-c", script)),
    )


def test_an_application_finds_its_peers_by_rank(
    emulation: Emulation,
) -> None:
    place = on(SWITCH, (0, 1), (1, 1), (2, 1))
    scripted = ScriptedPolicy(
        {"mpi": lambda _: [Start("mpi", place, 500 * MBIT)]}
    )
    histories = play(emulation, [command("mpi", RANKS)], scripted)
    end = ended(histories["mpi"])
    assert end.outcome == "finished", end.reason
    assert end.detail["exit_codes"] == [0, 0, 0]
    log = emulation.log_dir / "agent-mpi.1.log"
    assert "heard [0, 1, 2]" in log.read_text()


def test_an_application_that_fails_ends_its_job_with_its_output(
    emulation: Emulation,
) -> None:
    place = on(SWITCH, (0, 1), (1, 1), (2, 1))
    script = (
        "import os, sys, time\n"
        "if os.environ['HOSENET_RANK'] == '1': sys.exit('no such file: input.csv')\n"
        "time.sleep(60)"
    )
    scripted = ScriptedPolicy(
        {"app": lambda _: [Start("app", place, 500 * MBIT)]}
    )
    histories = play(emulation, [command("app", script)], scripted)
    end = ended(histories["app"])
    assert end.outcome == "killed"
    assert (
        end.reason
        == "VM 1: python3 ended with exit code 1: no such file: input.csv"
    )


def test_an_application_that_ignores_sigterm_is_killed_with_all_its_children(
    emulation: Emulation,
) -> None:
    place = on(SWITCH, (0, 1))
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "for _ in range(2): os.fork() or os.setsid()\n"
        "print('here', flush=True)\n"
        "time.sleep(60)"
    )
    scripted = ScriptedPolicy(
        {"stubborn": lambda _: [Start("stubborn", place, 500 * MBIT)]},
        {1.5: lambda _: [Kill("stubborn", "its time is over")]},
    )
    histories = play(emulation, [command("stubborn", script, 1)], scripted)
    end = ended(histories["stubborn"])
    assert (end.outcome, end.reason) == ("killed", "its time is over")
    # Its group is gone, so nothing is left in it; and the next job may have its place at once.
    mark = emulation.cgroup.paths[0].name
    vms = f"hosenet/{mark}/node0/vm*"
    assert not [group for group in control_groups() if group.match(vms)]
    again = ScriptedPolicy(
        {
            "next": lambda _: [
                Start("next", on(SWITCH, (0, 1), (1, 1)), 500 * MBIT)
            ]
        }
    )
    whole(play(emulation, [pair("next", 0.5)], again)["next"])
