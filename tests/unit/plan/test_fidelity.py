from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.plan.fidelity import (
    CapLimited,
    ClassSamples,
    Exceeding,
    Finding,
    ProcessorSample,
    ReceivedShares,
    Starved,
    leaks,
    preflight,
    processor,
    switch,
)

RATE = 80_000_000


@dataclass(frozen=True)
class Sample:
    """One class over one interval."""

    name: str
    rate_bps: float
    sent_bps: float
    queue_bytes: float
    most_bps: float
    packet_bps: float = 0.0
    bucket_bps: float = 0.0
    packet_bits: float = 0.0


def sample(
    sent_share: float, backlog: int = 200_000, name: str = "link"
) -> Sample:
    return Sample(name, RATE, sent_share * RATE, backlog, RATE)


def together(samples: Sequence[Sample]) -> ClassSamples:
    """Classes over the same interval, a row each."""
    names = [each.name for each in samples]

    def column(field: str) -> np.ndarray:
        return np.array(
            [getattr(each, field) for each in samples], dtype=float
        )

    fields = (
        "rate_bps", "sent_bps", "queue_bytes", "most_bps", "packet_bps", "packet_bits", "bucket_bps"
    )  # fmt: skip
    return ClassSamples(names.__getitem__, *map(column, fields))


class Rows:
    """Feeds a judge intervals in each of which other classes may have been seen."""

    def __init__(self, judge: Starved) -> None:
        self.judge, self.names = judge, list[str]()

    def take(self, *samples: Sample) -> None:
        names = [each.name for each in samples]
        was = [
            self.names.index(name) if name in self.names else -1
            for name in names
        ]
        self.judge.renumber(np.array(was, dtype=np.int64))
        self.names = names
        self.judge.take(together(samples))


def judged(judge: Starved, samples: Sequence[Sample]) -> Finding:
    """Of samples one after the other; of a class that is not sampled nothing is known meanwhile."""
    names = sorted({each.name for each in samples})
    rows = Rows(judge)
    for each in samples:
        unknown = replace(each, sent_bps=np.nan)
        rows.take(
            *(
                each if name == each.name else replace(unknown, name=name)
                for name in names
            )
        )
    return judge.finding()


def starved(samples: Sequence[Sample]) -> Finding:
    return judged(Starved(), samples)


def held_back(samples: Sequence[Sample]) -> Finding:
    return judged(CapLimited(), samples)


def exceeding(samples: Sequence[Sample]) -> Finding:
    return judged(Exceeding(), samples)


def test_a_backlogged_class_below_98_percent_twice_is_doubtful_and_below_90_invalid() -> (
    None
):
    assert starved([sample(0.97), sample(0.97)]).level == "suspect"
    assert starved([sample(0.5), sample(0.5)]).level == "invalid"
    assert starved([sample(0.99), sample(0.985)]).level == "ok"


def test_one_slow_interval_or_an_empty_queue_is_no_starvation() -> None:
    assert starved([sample(0.5)]).level == "ok"
    assert starved([sample(0.5), sample(0.5, backlog=100)]).level == "ok"
    assert (
        starved([sample(0.5), sample(1.0, backlog=0), sample(0.5)]).level
        == "ok"
    )
    assert (
        starved([sample(0.5, name="a"), sample(0.5, name="b")]).level
        == "ok"
    )


def test_the_starved_class_is_named() -> None:
    found = starved(
        [
            sample(1.0, name="x"),
            sample(0.6, name="y"),
            sample(0.6, name="y"),
        ]
    )
    assert found.reason.startswith("y had a queue")


def waits(shares: list[float]) -> list[ProcessorSample]:
    return [ProcessorSample(0.5, 0.0, waited=share) for share in shares]


def test_a_switch_that_waits_for_a_processor_is_doubted_by_its_worst_tenth() -> (
    None
):
    assert switch([]) == []
    assert [f.level for f in switch(waits([0.2] * 10))] == ["ok"]
    assert [f.level for f in switch(waits([0.2] * 9 + [0.6]))] == ["ok"]
    (doubtful,) = switch(waits([0.2] * 8 + [0.6] * 2))
    assert (doubtful.level, doubtful.metrics["waited_p90"]) == (
        "suspect",
        0.6,
    )
    assert "60% of the time" in doubtful.reason
    assert [f.level for f in switch(waits([0.2] * 8 + [0.95] * 2))] == [
        "invalid"
    ]


def test_preflight_is_the_busy_share_over_what_was_delivered() -> None:
    found = preflight(3e9, 0.5, 0.9, 0.1)
    assert found.level == "invalid"
    assert found.metrics["load"] == pytest.approx(2.0)
    assert (
        "at scale.rate: 0.1 that is 200% of what this machine can do"
        in found.reason
    )
    easy = preflight(3e9, 1.0, 0.3, 0.1)
    assert easy.level == "ok"
    assert easy.metrics["capable_bps"] == pytest.approx(1e10)
    assert easy.metrics["scale_rate"] == 0.1


@pytest.mark.parametrize(
    ("delivered", "busy", "load"),
    [
        (1.0, 0.6, 0.5),
        (1.0, 1.0, 0.9),
        (0.98, 0.75, 0.65 / 0.98),
        (
            0.98,
            0.85,
            0.9,
        ),  # as busy as a switch that polls: no more is known than that it fits
        (0.9, 1.0, 1.0),
        (0.75, 0.5, 1.2),
    ],
)
def test_a_network_that_keeps_up_without_a_tenth_of_the_processors_has_a_load_of_the_rest(
    delivered: float, busy: float, load: float
) -> None:
    found = preflight(1e9, delivered, busy, 1.0, taken_share=0.1)
    assert found.metrics["load"] == pytest.approx(load)


def test_what_a_run_would_be_doubted_for_did_not_fit_in_its_load_test() -> (
    None
):
    lost = Finding(
        "suspect", "drops", "3 packets were dropped at x", {"packets": 3}
    )
    starved = Finding(
        "invalid", "starved VM", "VM 7 sent 60%", {"share": 0.6}
    )
    found = preflight(1e9, 1.0, 1.0, 1.0, 0.1, [lost])
    assert found.level == "suspect"
    assert found.metrics["load"] == pytest.approx(0.9 / 0.98)
    assert "3 packets were dropped at x" in found.reason
    assert preflight(1e9, 1.0, 1.0, 1.0, 0.1, [starved, lost]).metrics[
        "load"
    ] == pytest.approx(1.5)


def test_a_load_test_that_delivers_nothing_is_invalid_and_does_not_divide_by_zero() -> (
    None
):
    assert preflight(1e9, 0.0, 0.0, 1.0).level == "invalid"


def samples(
    idle: list[float], steal: float = 0.0, **known: float
) -> list[ProcessorSample]:
    return [ProcessorSample(share, steal, **known) for share in idle]


def test_processors_that_are_never_idle_or_stolen_are_doubted() -> None:
    assert [f.level for f in processor(samples([0.5] * 10))] == ["ok", "ok"]
    assert processor(samples([0.0] * 10))[0].level == "invalid"
    assert processor(samples([0.5] * 9 + [0.05]))[0].level == "suspect"
    assert processor(samples([0.5] * 10, 0.2))[1].level == "invalid"
    assert processor([]) == []


@pytest.mark.parametrize(
    ("received", "others", "level"),
    [
        (1.0, 0.01, "ok"),
        (0.985, 0.5, "ok"),
        (0.97, 0.01, "invalid"),
        (1.0, 0.51, "invalid"),
        (nan, 0.01, "invalid"),
        (1.0, nan, "invalid"),
    ],
)
def test_full_processors_are_no_shortage_where_it_is_known_that_nothing_lacked(
    received: float, others: float, level: str
) -> None:
    full = samples(
        [0.0] * 10, waited=0.95, others=others, received=received
    )
    (idle, _), (waited,) = processor(full), switch(full)
    assert (idle.level, waited.level) == (level, level)
    assert idle.metrics["idle_p10"] == 0.0
    assert waited.metrics["waited_p90"] == 0.95
    assert ("received at their rates" in idle.reason) is (level == "ok")


def test_where_something_lacked_for_a_tenth_of_the_time_full_processors_are_a_shortage() -> (
    None
):
    full = samples([0.0] * 8, others=0.0, received=1.0)
    assert (
        processor([*full, *samples([0.0] * 2, others=0.0, received=0.5)])[
            0
        ].level
        == "invalid"
    )


@pytest.mark.parametrize(
    ("kinds", "level"),
    [
        ("e" + 9 * "k", "ok"),  # all jobs begin
        (9 * "k" + "e", "ok"),  # and end
        ("kkkeekkkkk", "ok"),  # one follows another
        ("eekkkkkkke", "ok"),
        (10 * "e", "invalid"),  # nothing known of any
        ("eeeeeeekkk", "invalid"),  # of too few
        ("lekkkkkkkk", "invalid"),  # one beside it lacked something
        ("ulkkkkkkkk", "invalid"),
        (
            "uukkkkkkkk",
            "invalid",
        ),  # not known, and not because they had just begun
    ],
)
def test_samples_of_jobs_that_begin_or_end_go_by_the_known_ones_beside_them(
    kinds: str, level: str
) -> None:
    of = {
        "e": ProcessorSample(0.0, 0.0, 0.0, 1.0, nan, unsettled=True),
        "k": ProcessorSample(0.0, 0.0, 0.0, 1.0, 1.0),
        "l": ProcessorSample(0.0, 0.0, 0.0, 1.0, 0.9),
        "u": ProcessorSample(0.0, 0.0, 0.0, 1.0, nan),
    }
    found = [of[kind] for kind in kinds]
    assert (processor(found)[0].level, switch(found)[0].level) == (
        level,
        level,
    )


def received(
    tenants: list[int],
    *samples: list[float],
    packet_bits: float = 0.0,
    interval_s: float = 1.0,
) -> float:
    """Of VMs at 100 bit/s, after these samples of what they received."""
    n, judge = len(tenants), ReceivedShares()
    rate, zero = np.full(n, 100.0), np.zeros(n)
    for got_bps in samples:
        packet = np.full(n, packet_bits)
        rows = ClassSamples(
            str,
            rate,
            np.array(got_bps),
            zero,
            rate,
            packet / interval_s,
            packet,
            zero,
        )
        share = judge.take(np.array(tenants), np.full(n, interval_s), rows)
    return share


def test_what_was_received_is_that_of_all_or_of_the_tenant_that_lacks_most() -> (
    None
):
    assert isnan(received([], []))
    assert received(
        [1, 1, 2, 2], [100.0, 98.0, 97.0, 101.0]
    ) == pytest.approx(0.99)
    assert received(
        [1, 1, 2, 2], [110.0, 110.0, 90.0, 90.0]
    ) == pytest.approx(0.9)


def test_a_tenant_of_few_slow_vms_may_lack_packets_all_together_may_not() -> (
    None
):
    # Of two VMs a packet of ten each: 14 of 400.
    slow = {"packet_bits": 10.0, "interval_s": 2.0}
    assert received([1, 1, 2, 2], [97.0, 97.0, 103.0, 103.0], **slow) == 1.0
    assert (
        received([1, 1, 2, 2], [97.0, 97.0, 100.0, 100.0], **slow) == 0.985
    )


def test_what_slow_vms_received_is_over_as_many_samples_as_it_takes() -> (
    None
):
    # 16 packets are 1.6 s: two samples; what was before counts no more.
    few = {"packet_bits": 10.0}
    assert isnan(received([1], [80.0], **few))
    assert received([1], [0.0], [80.0], [120.0], **few) == pytest.approx(
        1.0
    )
    assert received([1], [100.0], [60.0], [100.0], **few) == pytest.approx(
        0.8
    )
    assert received([1], [120.0], [80.0]) == pytest.approx(0.8)


def test_a_tenant_counts_when_its_first_packets_have_had_time_to_arrive() -> (
    None
):
    def rows(n: int) -> ClassSamples:
        rate, zero, packet = (
            np.full(n, 100.0),
            np.zeros(n),
            np.full(n, 10.0),
        )
        got = np.array([100.0, 40.0][:n])
        return ClassSamples(
            str, rate, got, zero, rate, packet, packet, zero
        )

    judge = ReceivedShares()
    for tenants, share in [
        ([1], nan),
        ([1], 1.0),
        ([1, 2], 1.0),
        ([1, 2], 0.45),
        ([2], 0.7),
    ]:
        found = judge.take(
            np.array(tenants), np.ones(len(tenants)), rows(len(tenants))
        )
        assert found == pytest.approx(share, nan_ok=True)


def test_unshaped_packets_are_invalid_and_drops_suspect_and_both_name_the_port() -> (
    None
):
    assert [f.level for f in leaks({}, {})] == ["ok", "ok"]
    unshaped, drops = leaks(
        {"hn-s0v0": 3}, {"rack 0 -> server 1, tenant 2": 7}
    )
    assert (unshaped.level, drops.level) == ("invalid", "suspect")
    assert "hn-s0v0" in unshaped.reason
    assert "rack 0 -> server 1" in drops.reason


@pytest.mark.parametrize(
    ("full", "level", "packets"),
    [
        ({}, "suspect", 9),
        ({"a": 7, "b": 2}, "ok", 0),
        ({"a": 7}, "suspect", 2),
        # Of another class than the one that dropped.
        ({"c": 9}, "suspect", 9),
        ({"a": 9}, "suspect", 2),
    ],
)
def test_drops_of_full_classes_are_counted_and_no_doubt(
    full: dict[str, int], level: str, packets: int
) -> None:
    _, drops = leaks({}, {"a": 7, "b": 2}, full)
    assert drops.level == level
    assert drops.metrics == {"packets": packets, "full": 9 - packets}
    assert ("drops none" in drops.reason) == (packets > 0)
    by_full = f"{9 - packets} packets were dropped by full reservations"
    assert (by_full in drops.reason) == (packets < 9)


def test_a_packet_more_or_less_is_not_held_against_a_slow_class() -> None:
    slow = Sample(
        "slow", 1_000_000, 965_000.0, 9_000, 1_000_000, packet_bps=72_000.0
    )
    assert held_back([slow, slow]).level == "ok"
    assert held_back([replace(slow, packet_bps=0.0)] * 2).level == "suspect"
    assert (
        held_back([replace(slow, sent_bps=400_000.0)] * 2).level
        == "invalid"
    )
    fast = replace(slow, sent_bps=1_075_000.0)
    assert exceeding([fast, fast]).level == "ok"
    assert exceeding([replace(fast, packet_bps=0.0)] * 2).level == "suspect"
    faster = replace(fast, sent_bps=1_175_000.0)
    assert exceeding([faster, faster]).level == "invalid"
    assert (
        exceeding([replace(faster, bucket_bps=200_000.0)] * 2).level == "ok"
    )


def test_a_single_packet_is_no_queue() -> None:
    slow = Sample(
        "slow",
        1_000_000,
        500_000.0,
        30_000,
        1_000_000,
        packet_bits=8 * 32_768,
    )
    assert held_back([slow, slow]).metrics == {}
    assert (
        held_back([replace(slow, queue_bytes=40_000)] * 2).level
        == "invalid"
    )


def test_what_a_class_sends_over_its_rate() -> None:
    assert (
        exceeding([sample(2.5)]).level == "ok"
    )  # one sample may be a bucket's
    assert exceeding([sample(1.06), sample(1.0)]).level == "ok"
    assert exceeding([sample(1.06), sample(1.06)]).level == "suspect"
    assert exceeding([sample(2.5), sample(2.5)]).level == "invalid"
    assert (
        exceeding([sample(2.5, name="a"), sample(2.5, name="b")]).level
        == "ok"
    )
    assert exceeding([]).level == "ok"
    # Its rate was raised in between: it may have had the higher one all the time.
    raised = replace(sample(1.9), most_bps=2 * RATE)
    assert (
        exceeding(
            [
                raised,
                replace(sample(2.0), rate_bps=2 * RATE, most_bps=2 * RATE),
            ]
        ).level
        == "ok"
    )
    found = exceeding(
        [
            sample(1.0, name="x"),
            sample(1.2, name="y"),
            sample(1.2, name="y"),
        ]
    )
    assert found.metrics["share"] == pytest.approx(1.2)
    assert found.reason == "y sent 120.0% of its rate"


def test_a_vm_is_cap_limited_for_all_of_the_time_in_which_it_had_a_queue() -> (
    None
):
    assert held_back([]).level == "ok"
    assert held_back([sample(0.4)]).level == "ok"
    assert (
        held_back([sample(0.4), sample(0.4, backlog=0), sample(0.4)]).level
        == "ok"
    )
    assert (
        held_back([sample(0.4, name="a"), sample(0.4, name="b")]).level
        == "ok"
    )
    stalled = [sample(0.95), *[sample(1.0)] * 9]
    assert held_back(stalled).level == "ok"
    assert held_back(stalled).metrics["share"] == pytest.approx(0.995)
    assert held_back([sample(0.95), sample(1.0)]).level == "suspect"
    assert held_back([sample(0.4)] * 5).level == "invalid"
    # The worst of several times, though others follow.
    twice = [
        sample(0.5),
        sample(0.5),
        sample(1.0, backlog=0),
        *[sample(1.0)] * 9,
    ]
    assert held_back(twice).metrics["share"] == pytest.approx(0.5)
    assert held_back(
        [sample(1.0, name="x"), *[sample(0.6, name="y")] * 2]
    ).reason.startswith("y")


def test_who_has_gone_is_judged_and_forgotten() -> None:
    back, over, short = CapLimited(), Exceeding(), Starved()
    for judge in (back, over, short):
        rows = Rows(judge)
        rows.take(sample(0.4))
        rows.take()
        rows.take(sample(0.4))
    assert [judge.finding().level for judge in (back, over, short)] == [
        "ok"
    ] * 3
    back = CapLimited()
    rows = Rows(back)
    for _ in range(2):
        rows.take(sample(1.0, name="x"), sample(0.4, name="y"))
    rows.take(sample(1.0, name="x"), sample(1.0, name="z"))
    assert back.finding().level == "invalid"
    assert back.finding().reason.startswith("y ")


SHARES = st.sampled_from([0.5, 0.85, 0.95, 1.0, 1.06, 1.2])
SEEN = st.lists(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(SHARES, st.sampled_from([0, 200_000])),
    ),
    max_size=8,
)


@pytest.mark.slow
@given(seen=SEEN)
@pytest.mark.parametrize("kind", [Starved, CapLimited, Exceeding])
def test_classes_side_by_side_are_judged_as_each_by_itself(
    kind: type[Starved], seen: list[dict[str, tuple[float, int]]]
) -> None:
    """Rows come, go and change their places; the verdict is the worst of all classes' own."""
    rows = Rows(kind())
    for interval in seen:
        rows.take(
            *(
                sample(share, queue, name)
                for name, (share, queue) in interval.items()
            )
        )
    alone = []
    for name in "abcd":
        own = Rows(kind())
        for interval in seen:
            own.take(
                *(
                    sample(*interval[name], name)
                    for _ in range(name in interval)
                )
            )
        alone.append(own.judge.finding())
    shares = [found.metrics["share"] for found in alone if found.metrics]
    worst = max if kind is Exceeding else min
    found = rows.judge.finding()
    assert found.metrics.get("share") == (worst(shares) if shares else None)
    assert found in alone or found.metrics["share"] in shares
