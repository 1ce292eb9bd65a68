"""Lateness is how late a sleep ends, not how long this process was busy."""

from types import SimpleNamespace
from typing import Any, cast

from testbed.backends.emu.watch import Watch
from testbed.spec.experiment import Scale


def watching() -> Watch:
    network = SimpleNamespace(unshaped_packets=dict, class_counters=dict)
    world = cast(Any, SimpleNamespace(network=network))
    watch = Watch(world, Scale(1.0, 1.0), lambda _: None, lambda: 0.0)
    watch.start()
    return watch


def lateness_s(watch: Watch) -> list[float]:
    return [f.figures["max_s"] for f in watch.findings() if f.check == "lateness"]


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
    watch.tick(5.0, [])  # comes when it comes, after whatever was done before
    watch.slept(0.0, 0.2)  # did not mean to sleep at all
    assert lateness_s(watch) == []
