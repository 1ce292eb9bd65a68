"""Samples while jobs run: lateness, and every limiter of a tenant."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.backends.emu import sampling as watch_module
from testbed.backends.emu.netlink import Counters
from testbed.backends.emu.sampling import Watch
from testbed.embedding.placement import Placement
from testbed.plan.fidelity import Finding
from testbed.plan.network_plan import Slot, network_plan, tenant_plan
from testbed.spec.experiment import Scale
from topologies.tree import tree


def watching() -> Watch:
    network = SimpleNamespace(unshaped_packets=dict, host_counters=lambda: ({}, {}), switch_pids=[])
    emulation = cast(Any, SimpleNamespace(network=network))
    watch = Watch(emulation, Scale(1.0, 1.0), lambda _: None, lambda: 0.0)
    watch.start()
    return watch


def lateness_s(watch: Watch) -> list[float]:
    return [f.metrics["max_s"] for f in watch.findings() if f.check == "lateness"]


def test_a_sleep_that_lasted_too_long_was_late_by_the_rest() -> None:
    watch = watching()
    watch.slept(0.5, 0.5)
    watch.slept(0.5, 0.75)
    assert lateness_s(watch) == [0.25]


def test_a_sleep_that_a_message_cut_short_says_nothing() -> None:
    watch = watching()
    watch.slept(0.5, 0.1)
    assert lateness_s(watch) == []


def test_what_this_process_does_between_two_samples_is_not_lateness() -> None:
    watch = watching()
    watch.tick(5.0, [], ())  # comes when it comes, after whatever was done before
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
    """Counters that each limiter moves at its own share of the rate; a queue where it is held."""

    def __init__(self, queue_at: str, shares: dict[str, float]) -> None:
        self.queue_at, self.shares, self.dumps = queue_at, shares, 0
        self.unshaped_packets = dict
        self.switch_pids: list[int] = []

    def _of(self, limiter: str) -> Counters:
        sent = round(RATE_BPS / 8 * self.shares.get(limiter, 0.5) * self.dumps)
        return Counters(sent, 0, 100_000 if limiter == self.queue_at else 0, 0)

    def host_counters(self) -> tuple[dict[tuple[int, int], Counters], dict[str, Counters]]:
        self.dumps += 1
        classes = {(1, link): self._of("link") for link, _ in TENANT.link_bps}
        return classes, {vm.slot.port.name: self._of("receive cap") for vm in TENANT.vms}

    def vm_counters(self, _: Slot) -> Counters:
        return self._of("send cap")


def judged(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, cap_limited: tuple[int, ...] = (1,)
) -> list[Finding]:
    """The findings after six dumps, a second apart."""
    monkeypatch.setattr(watch_module, "time", SimpleNamespace(monotonic=lambda: kernel.dumps + 0.0))
    emulation = cast(Any, SimpleNamespace(network=kernel, datacentre=PAIR))
    watch = Watch(emulation, Scale(1.0, 1.0), lambda _: None, lambda: 0.0)
    watch.start()
    for _ in range(6):
        watch._sample([TENANT], cap_limited)
    checks = ("starved class", "starved VM", "exceeded limit")
    return [f for f in watch.findings() if f.check in checks]


@pytest.mark.parametrize("limiter", ["send cap", "receive cap", "link"])
def test_a_limiter_that_lets_too_little_through(
    limiter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(monkeypatch, Kernel(limiter, {limiter: 0.4}))
    (bad,) = [each for each in found if each.level != "ok"]
    assert bad.check == ("starved class" if limiter == "link" else "starved VM")
    assert bad.level == "invalid"
    assert limiter in bad.reason or "->" in bad.reason


@pytest.mark.parametrize("limiter", ["send cap", "receive cap", "link"])
def test_a_limiter_that_lets_too_much_through(
    limiter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(monkeypatch, Kernel("", {limiter: 2.5}))
    assert "invalid" in {each.level for each in found}


@pytest.mark.parametrize("limiter", ["send cap", "receive cap"])
def test_limiters_that_keep_to_their_rate(limiter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, Kernel(limiter, {"send cap": 1.0, "receive cap": 1.0}))
    assert [f.level for f in found] == ["ok", "ok", "ok"]
    assert found[1].metrics["share"] == pytest.approx(1.0, abs=0.01)


def test_a_look_that_took_long_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel("send cap", {"send cap": 0.4})
    look = kernel.vm_counters

    def slow(slot: Slot) -> Counters:
        kernel.dumps += 1
        return look(slot)

    kernel.vm_counters = slow  # type: ignore[method-assign]
    assert judged(monkeypatch, kernel)[1].reason == "no VM's cap stayed backlogged"


def test_a_tenant_that_pauses_is_not_limited_by_its_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, Kernel("send cap", {"send cap": 0.4}), cap_limited=())
    assert [f.level for f in found] == ["ok", "ok", "ok"]


def test_two_looks_are_a_second_apart_at_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(watch_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch, looked = watching(), []
    monkeypatch.setattr(watch, "_sample", lambda *_: looked.append(now[0]))
    for step in (0.4, 0.7, 2.3, 0.1, 0.8, 0.2, 5.0, 0.1, 1.0):
        now[0] = round(now[0] + step, 1)
        watch.tick(1.0, [], ())
    assert looked == [101.1, 103.4, 104.5, 109.5, 110.6]
