"""Samples while jobs run: lateness, and every limiter of a tenant."""

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed import events
from testbed.backends.emu import sampling as watch_module
from testbed.backends.emu.job_evidence import Followed
from testbed.backends.emu.limiter_counters import (
    COUNTERS,
    NOT_COUNTED,
    WHOLE_LINK,
    Limiter,
)
from testbed.backends.emu.sampling import (
    LIMITER,
    SAMPLE_EVERY_AT_MOST_S,
    SAMPLES_SHARE,
    Watch,
    limiters,
)
from testbed.embedding.placement import Placement
from testbed.plan.direct_evidence import JobEvidence, weighed
from testbed.plan.fidelity import Finding
from testbed.plan.limits import largest_packet_bytes
from testbed.plan.network_plan import (
    TenantPlan,
    enforced,
    network_plan,
    tenant_plan,
)
from testbed.spec.experiment import Scale
from topologies.tree import tree


def watching() -> Watch:
    network = SimpleNamespace(
        unshaped_packets=dict,
        counter_reader=lambda _: SimpleNamespace(
            read=lambda: np.zeros(0, COUNTERS)
        ),
        switch_pids=[],
        forwarders=[],
        forwards_in_kernel=False,
    )
    emulation = emulation_of(network)
    watch = Watch(emulation, Scale(1.0, 1.0), lambda _: None, lambda: 0.0)
    watch.start()
    return watch


def emulation_of(network: object) -> Any:
    """A network whose controller counts no passes."""
    return SimpleNamespace(
        network=network,
        datacentre=PAIR,
        plan=PLAN,
        controller_stood_s=None,
        held_up_s=0.0,
        own_controller=None,
    )


def test_what_a_controller_stood_before_the_run_is_none_of_it() -> None:
    network = SimpleNamespace(
        switch_pids=[],
        forwarders=[],
        forwards_in_kernel=False,
        unshaped_packets=dict,
    )
    emulation = emulation_of(network)
    emulation.controller_stood_s = 3.0
    emulation.held_up_s = 1.0
    watch = Watch(emulation, Scale(), lambda _: None, lambda: 0.0)
    watch.start()
    emulation.controller_stood_s = 5.0
    emulation.held_up_s = 1.25
    (found,) = [f for f in watch.findings() if f.check == "controller"]
    assert found.metrics == {"stood_s": 2.0, "held_up_s": 0.25}


def lateness_s(watch: Watch) -> list[float]:
    return [
        f.metrics["max_s"]
        for f in watch.findings()
        if f.check == "lateness"
    ]


def test_a_sleep_that_lasted_too_long_was_late_by_the_rest() -> None:
    watch = watching()
    watch.slept(0.5, 0.5)
    watch.slept(0.5, 0.75)
    assert lateness_s(watch) == [0.25]


def test_a_sleep_that_a_message_cut_short_says_nothing() -> None:
    watch = watching()
    watch.slept(0.5, 0.1)
    assert lateness_s(watch) == []


def test_what_this_process_does_between_two_samples_is_not_lateness() -> (
    None
):
    watch = watching()
    watch.tick(
        5.0, [], {}
    )  # comes when it comes, after whatever was done before
    watch.slept(0.0, 0.2)  # did not mean to sleep at all
    assert lateness_s(watch) == []


RATE_BPS = 8_000_000
TENANT = tenant_plan(
    PAIR := tree([2], [100_000_000], 1),
    PLAN := network_plan(PAIR, "hn", 1.0),
    Placement(PAIR.trees[0].root, ((0, 1), (1, 1))),
    PLAN.slots,
    1,
    "job",
    RATE_BPS,
)


class Kernel:
    """Counters that each limiter moves at its own share of the rate; a queue where it is held.

    What is in ``unread`` is read too slowly to know when, what is in ``gone`` not at all. A class
    on a link drops as many packets at each dump as ``drops`` says.
    """

    def __init__(self, queue_at: str, shares: dict[str, float]) -> None:
        self.queue_at, self.shares, self.dumps = queue_at, shares, 0
        self.unread: set[str] = set()
        self.gone: set[str] = set()
        self.drops = 0
        self.unshaped_packets = dict
        self.switch_pids: list[int] = []
        self.forwarders: list[Any] = []
        self.forwards_in_kernel = False

    def counter_reader(
        self, limiters: list[Limiter], *, one_by_one: bool = False
    ) -> Any:
        assert not one_by_one or all(at.minor for at in limiters)
        names = [
            "link"
            if at.minor
            else "send cap"
            if at.netns
            else "receive cap"
            for at in limiters
        ]
        return SimpleNamespace(read=lambda: self._read(names))

    def _read(self, names: list[str]) -> np.ndarray:
        self.dumps += 1
        rows = [
            (self.dumps, *self._of(name), 100_000 * (name == self.queue_at))
            for name in names
        ]
        found = np.array(rows, COUNTERS)
        found["at_s"][[name in self.unread for name in names]] = np.nan
        found[[name in self.gone for name in names]] = np.array(
            [NOT_COUNTED], COUNTERS
        )
        return found

    def _of(self, limiter: str) -> tuple[int, int]:
        sent = round(
            RATE_BPS / 8 * self.shares.get(limiter, 0.5) * self.dumps
        )
        return sent, self.drops * self.dumps * (limiter == "link")


def judged(
    monkeypatch: pytest.MonkeyPatch,
    kernel: Kernel,
    cap_limited: tuple[int, ...] = (1,),
) -> list[Finding]:
    """The findings after six dumps, a second apart."""
    return [
        found
        for found in sampled(monkeypatch, kernel, cap_limited)[0].findings()
        if found.check in ("starved class", "starved VM", "exceeded limit")
    ]


def sampled(
    monkeypatch: pytest.MonkeyPatch,
    kernel: Kernel,
    cap_limited: tuple[int, ...] = (1,),
    tenant: TenantPlan | None = None,
) -> tuple[Watch, list[events.Event]]:
    """After six dumps, a second apart; with what was recorded."""
    monkeypatch.setattr(
        watch_module,
        "time",
        SimpleNamespace(monotonic=lambda: kernel.dumps + 0.0),
    )
    emulation = emulation_of(kernel)
    recorded: list[events.Event] = []
    watch = Watch(emulation, Scale(0.5, 1.0), recorded.append, lambda: 0.0)
    watch.start()
    for _ in range(6):
        watch._sample([tenant or TENANT], dict.fromkeys(cap_limited, 0.5))
    return watch, recorded


@pytest.mark.parametrize("limiter", ["send cap", "receive cap", "link"])
def test_a_limiter_that_lets_too_little_through(
    limiter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(monkeypatch, Kernel(limiter, {limiter: 0.4}))
    (bad,) = [each for each in found if each.level != "ok"]
    assert bad.check == (
        "starved class" if limiter == "link" else "starved VM"
    )
    assert bad.level == "invalid"
    assert limiter in bad.reason or "->" in bad.reason


@pytest.mark.parametrize("limiter", ["send cap", "receive cap", "link"])
def test_a_limiter_that_lets_too_much_through(
    limiter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(monkeypatch, Kernel("", {limiter: 2.5}))
    assert "invalid" in {each.level for each in found}


@pytest.mark.parametrize("limiter", ["send cap", "receive cap"])
def test_limiters_that_keep_to_their_rate(
    limiter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(
        monkeypatch, Kernel(limiter, {"send cap": 1.0, "receive cap": 1.0})
    )
    assert [f.level for f in found] == ["ok", "ok", "ok"]
    assert found[1].metrics["share"] == pytest.approx(1.0, abs=0.01)


def test_counters_of_an_unknown_time_are_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel("send cap", {"send cap": 0.4})
    kernel.unread = {"send cap"}
    assert (
        judged(monkeypatch, kernel)[1].reason
        == "no VM's cap stayed backlogged"
    )


def test_a_sample_has_what_was_sent_and_reserved_on_each_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, recorded = sampled(monkeypatch, Kernel("", {"link": 0.75}))
    links = [
        [link, 0.75 * RATE_BPS / 0.5, bps / 0.5]
        for link, bps in sorted(TENANT.link_bps)
    ]
    assert [
        each for each in recorded if isinstance(each, events.LinkSample)
    ] == [events.LinkSample(0.0, 1.0, links)] * 5


@pytest.mark.parametrize("unread", [set(), {"link"}])
def test_drops_on_links_count_whenever_they_were_read(
    unread: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel("", {})
    kernel.drops, kernel.unread = 3, unread
    found = sampled(monkeypatch, kernel)[0].findings()
    (lost,) = [each for each in found if each.check == "drops"]
    assert (lost.level, lost.metrics["packets"]) == (
        "suspect",
        3 * 5 * len(TENANT.link_bps),
    )
    assert "tenant 1" in lost.reason


ALL_LINKS = frozenset(link for link, _ in TENANT.link_bps)
PROGRAM = Followed(
    "job", "command", TENANT, 0.0, 9.0, pids=(), converging=ALL_LINKS
)
"""As if on both of its links more of its VMs could send than it reserves."""


def of_program(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, job: Followed
) -> tuple[Finding, JobEvidence]:
    """The finding on drops, three at each dump, and the job's evidence."""
    monkeypatch.setattr(
        watch_module,
        "time",
        SimpleNamespace(
            monotonic=lambda: kernel.dumps + 0.0, thread_time=lambda: 0.0
        ),
    )
    kernel.drops = 3
    watch = Watch(
        emulation_of(kernel), Scale(), lambda _: None, lambda: 0.0
    )
    watch.start()
    watch.evidence._next_s = 0.0
    for _ in range(6):
        watch.look(0.0, lambda: [job])
        watch._sample([TENANT], {})
    evidence = watch.evidence.finish(1)
    assert evidence is not None
    (drops,) = weighed(
        [one for one in watch.findings() if one.check == "drops"],
        [evidence],
    )[:1]
    return drops, evidence


@pytest.mark.parametrize(
    ("share", "pids", "job", "is_full"),
    [
        (1.0, [], PROGRAM, True),
        # A planted limiter.
        (0.4, [], PROGRAM, False),
        # A switch of whose waits nothing is known.
        (1.0, [0], PROGRAM, False),
        (1.0, [], replace(PROGRAM, converging=frozenset()), False),
        (1.0, [], replace(PROGRAM, converging=frozenset({99})), False),
        (
            1.0,
            [],
            Followed("job", "shuffle", TENANT, 0.0, 9.0, pids=()),
            False,
        ),
    ],
)
def test_a_programs_drops_are_no_doubt_where_its_class_was_full(
    share: float,
    pids: list[int],
    job: Followed,
    is_full: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel("link", {"link": share})
    kernel.switch_pids = pids
    drops, evidence = of_program(monkeypatch, kernel, job)
    assert (drops.level == "ok") == is_full
    total = drops.metrics["packets"] + drops.metrics["full"]
    assert total >= 3 * 5 * len(ALL_LINKS)
    assert bool(drops.metrics["full"]) == is_full
    assert bool(drops.metrics["packets"]) != is_full
    assert evidence.full_drops == drops.metrics["full"]
    assert evidence.drops == drops.metrics["packets"]
    assert bool(evidence.resent_s) != is_full


def test_a_port_that_is_gone_is_told_of_and_not_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel("", {"link": 0.4})
    kernel.gone = {"receive cap"}
    watch, _ = sampled(monkeypatch, kernel)
    assert watch.lost_ports == [(1, 0), (1, 1)]
    assert "receive cap" not in "".join(
        found.reason for found in watch.findings()
    )
    kernel.gone = {"send cap", "link"}
    assert sampled(monkeypatch, kernel)[0].lost_ports == []


@pytest.mark.parametrize(
    ("unread", "unsettled"), [(set(), 1), ({"receive cap"}, 0)]
)
def test_only_vms_that_have_just_begun_leave_a_sample_to_those_beside_it(
    unread: set[str], unsettled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel("", {"receive cap": 1.0})
    kernel.unread = unread
    watch, _ = sampled(monkeypatch, kernel)
    assert [one.unsettled for one in watch._samples] == [
        True
    ] * unsettled + [False] * (6 - unsettled)


def test_what_lacks_is_drops_and_what_is_starved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sampled(monkeypatch, Kernel("", {}))[0].lacking() == []
    kernel = Kernel("link", {"link": 0.4})
    kernel.drops = 1
    found = sampled(monkeypatch, kernel)[0].lacking()
    assert [(one.check, one.level) for one in found] == [
        ("starved class", "invalid"), ("drops", "suspect"),
    ]  # fmt: skip


def test_a_link_that_could_not_be_read_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel("", {})
    kernel.unread = {"link"}
    assert sampled(monkeypatch, kernel)[1] == []


def test_a_tenant_that_pauses_is_not_limited_by_its_caps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = judged(
        monkeypatch, Kernel("send cap", {"send cap": 0.4}), cap_limited=()
    )
    assert [f.level for f in found] == ["ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("cost_s", "apart_s"),
    [
        (0.0, 1.0),
        (SAMPLES_SHARE, 1.0),
        (3 * SAMPLES_SHARE, 3.0),
        (1.0, SAMPLE_EVERY_AT_MOST_S),
    ],
)
def test_two_samples_are_a_second_apart_and_more_where_they_cost_more(
    cost_s: float, apart_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, used = [100.0], [0.0]
    clocks = SimpleNamespace(
        monotonic=lambda: now[0], thread_time=lambda: used[0]
    )
    monkeypatch.setattr(watch_module, "time", clocks)
    watch, looked = watching(), []

    def sample(*_: object) -> None:
        looked.append(now[0])
        used[0] += cost_s

    monkeypatch.setattr(watch, "_sample", sample)
    for _ in range(400):
        now[0] += 0.1
        watch.tick(1.0, [], {})
    gaps = [late - early for early, late in itertools.pairwise(looked)]
    assert looked[0] == pytest.approx(101.0, abs=0.11)
    assert gaps == pytest.approx([apart_s] * len(gaps), abs=0.11)
    assert min(gaps) > apart_s - 1e-6


def test_a_late_sample_moves_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    clocks = SimpleNamespace(
        monotonic=lambda: now[0], thread_time=lambda: 0.0
    )
    monkeypatch.setattr(watch_module, "time", clocks)
    watch, looked = watching(), []
    monkeypatch.setattr(watch, "_sample", lambda *_: looked.append(now[0]))
    for step in (0.4, 0.7, 2.3, 0.1, 0.8, 0.2, 5.0, 0.1, 1.0):
        now[0] = round(now[0] + step, 1)
        watch.tick(1.0, [], {})
    assert looked == [101.1, 103.4, 104.5, 109.5, 110.6]


def test_a_limiter_is_judged_by_the_packets_that_its_vms_send() -> None:
    much = replace(TENANT, volume_bytes=1 << 30)
    rows = np.array(list(limiters([much], PLAN).values()), LIMITER)
    assert set(rows["packet_bits"]) == {8 * largest_packet_bytes(much)}
    assert largest_packet_bytes(much) > largest_packet_bytes(TENANT)


LENT = enforced(PLAN, TENANT, "work-conserving")


def doubted(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, tenant: TenantPlan
) -> list[tuple[str, str]]:
    found = sampled(monkeypatch, kernel, tenant=tenant)[0].findings()
    judged = ("starved class", "starved VM", "exceeded limit", "drops")
    return [
        (f.check, f.level)
        for f in found
        if f.check in judged and f.level != "ok"
    ]


def test_a_borrower_may_send_all_that_its_link_carries_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_of_it = dict.fromkeys(("link", "send cap", "receive cap"), 100 / 8)
    full = Kernel("link", all_of_it)
    full.drops = 3
    assert doubted(monkeypatch, full, LENT) == []
    assert ("exceeded limit", "invalid") in doubted(
        monkeypatch, full, TENANT
    )
    over = Kernel("", {"link": 1.2 * 100 / 8})
    assert doubted(monkeypatch, over, LENT) == [
        ("exceeded limit", "invalid")
    ]


def test_a_borrowers_guarantee_is_watched_on_links_and_not_at_its_caps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert doubted(monkeypatch, Kernel("link", {"link": 0.4}), LENT) == [
        ("starved class", "invalid")
    ]
    assert (
        doubted(monkeypatch, Kernel("send cap", {"send cap": 0.4}), LENT)
        == []
    )
    # What it received of its rate says that nothing lacked, as of any reserved tenant.
    watch, _ = sampled(
        monkeypatch, Kernel("", {"receive cap": 2.0}), tenant=LENT
    )
    assert watch.received == pytest.approx(2.0)


def test_without_enforcement_only_caps_are_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = enforced(PLAN, TENANT, "none")
    rows = limiters([free], PLAN)
    assert {at.minor for at in rows} == {None}
    # How full its links are says what held it up.
    links = {row[2] for row in rows.values() if row[0] == WHOLE_LINK}
    assert links == {0, 1, 2, 3}
    assert doubted(monkeypatch, Kernel("link", {"link": 0.4}), free) == []
    assert doubted(monkeypatch, Kernel("", {"send cap": 20.0}), free) == [
        ("exceeded limit", "invalid")
    ]


def test_a_short_job_is_counted_between_two_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel("", {})
    monkeypatch.setattr(
        watch_module,
        "time",
        SimpleNamespace(monotonic=lambda: 0.0, thread_time=lambda: 0.0),
    )
    watch = Watch(
        emulation_of(kernel), Scale(), lambda _: None, lambda: 0.0
    )
    watch.start()
    monkeypatch.setattr(watch.evidence, "due_in_s", lambda: 0.0)
    for wants in (False, True, True):
        monkeypatch.setattr(watch.evidence, "look", lambda _: None)
        watch.evidence.wants_count = wants
        watch.look(1.0, lambda: [SimpleNamespace(tenant=TENANT)])
    assert kernel.dumps == 2
    # Where samples are dear, there are no more of them.
    watch._cost_s = 2 * SAMPLES_SHARE
    watch.look(1.0, lambda: [SimpleNamespace(tenant=TENANT)])
    assert kernel.dumps == 2


@pytest.mark.parametrize("limiter", ["send cap", "link"])
def test_what_the_experiment_stops_is_not_starved(
    limiter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until TCP may send at its rate again after a failure of the file."""
    kernel = Kernel(limiter, {limiter: 0.4})
    watch, _ = sampled(monkeypatch, kernel)
    bad = ("starved class", "starved VM")
    levels = {f.check: f.level for f in watch.findings()}
    assert "invalid" in {levels[check] for check in bad}
    monkeypatch.setattr(
        watch_module.EvidenceTaker, "is_disturbed", lambda *_: True
    )
    watch, _ = sampled(monkeypatch, Kernel(limiter, {limiter: 0.4}))
    levels = {f.check: f.level for f in watch.findings()}
    assert {levels[check] for check in bad} == {"ok"}
