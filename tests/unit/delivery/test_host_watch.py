"""When a virtual machine's figures are not to be believed: others had the host's processors."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.distributions import ROOT


def script(name: str) -> ModuleType:
    """A program of tests/vm, whose folder is on its path alone."""
    loader = importlib.machinery.SourceFileLoader(
        f"vm_{name}", str(ROOT / "tests/vm" / name)
    )
    specification = importlib.util.spec_from_loader(loader.name, loader)
    assert specification is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


watch = script("host_watch.py")


def counters(total: int, busy: int, steal: int, own: int) -> object:
    return watch.Counters(total, busy, steal, own)


def intervals(quiet: int, busy: int, share: int) -> list[object]:
    """Of 2 s each, in ticks of 1 % of all processors: qemu has 90, others `share` while busy."""
    start = counters(0, 0, 0, 0)
    idle = [watch.interval(start, counters(100, 92, 0, 90), 2.0)] * quiet
    return (
        idle
        + [watch.interval(start, counters(100, 60 + share, 0, 60), 2.0)]
        * busy
    )


def test_the_machine_s_own_time_is_not_others() -> None:
    (one,) = intervals(quiet=1, busy=0, share=0)
    assert one.others == pytest.approx(0.02)
    assert not one.busy


def test_a_short_disturbance_is_forgiven_and_a_long_one_said_plainly() -> (
    None
):
    short = watch.summary(intervals(100, 15, 40), load=2.0)
    assert short.believable
    assert short.sentence().startswith("host was quiet: others ")
    long = watch.summary(intervals(100, 16, 40), load=2.0)
    assert not long.believable
    assert (
        "host was busy: others used 40% of its processors for 32 s (steal 0.0%)"
        in (long.sentence())
    )
    assert "what was measured is not to be believed" in long.sentence()
    assert long.record()["believable"] is False


def test_time_that_a_hypervisor_took_counts_as_busy() -> None:
    one = watch.interval(
        counters(0, 0, 0, 0), counters(100, 90, 5, 90), 2.0
    )
    assert one.busy
    assert watch.summary([one] * 20, load=1.0).steal_share == pytest.approx(
        0.05
    )


def test_a_host_that_was_not_watched_is_not_believed() -> None:
    assert not watch.summary([], load=0.0).believable


def test_the_counters_of_proc(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "stat").write_text(
        "cpu  10 1 20 100 5 2 3 4 9 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    )
    after_name = "S " + " ".join(str(field) for field in range(4, 20))
    (tmp_path / "7/stat").write_text(f"7 (qemu (x) 1) {after_name}\n")
    found = watch.counters(7, tmp_path)
    assert (found.total, found.busy, found.steal, found.own) == (
        145,
        36,
        4,
        14 + 15,
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tests/vm"))
    return script("run")


def test_figures_are_medians_and_marked_when_the_host_was_busy(
    run: ModuleType,
) -> None:
    line = '{"step": "scaling", "figure": "sort", "unit": "", "value": %s}'
    rows = run.medians(
        [line % value for value in (1.3, 1.0, 1.1)], believable=False
    )
    assert [(r["median"], r["values"], r["believable"]) for r in rows] == [
        (1.1, [1.3, 1.0, 1.1], False)
    ]


def test_the_time_left_is_that_of_the_steps_ahead_in_an_earlier_call(
    run: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run.Progress("trixie", tmp_path)
    good = [{"name": "facts", "seconds": 6, "exit_code": 0}]
    good.append({"name": "lab", "seconds": 41, "exit_code": 0})
    first.keep([*good, {"name": "tiers", "seconds": 2, "exit_code": 1}])
    later = run.Progress("trixie", tmp_path)
    later.look("\x1b[!p== steps: facts lab")
    later.look("== step 1 of 2: facts")
    later.look("== step 2 of 2: lab")
    later.look("== step 3 of 3: tiers")
    assert capsys.readouterr().out.splitlines() == [
        "vm: step 1 of 2: facts; about 47 s left",
        "vm: step 2 of 2: lab; about 41 s left",
        "vm: step 3 of 3: tiers",
    ]


def test_steps_and_repetitions_are_on_the_kernels_command_line(
    run: ModuleType, tmp_path: Path
) -> None:
    boot = tmp_path / "boot"
    boot.mkdir()
    for name in ("vmlinuz-6.1", "initrd.img-6.1"):
        (boot / name).touch()
    asked = (
        "--only figure_10 --repetitions 3 --bandwidths 450Mbit/s,150Mbit/s"
    )
    options = run.parse(asked.split())
    command = run.qemu(tmp_path, tmp_path, options)
    settings = command[command.index("-append") + 1].split()
    assert "hosenet.only=figure_10" in settings
    assert "hosenet.repetitions=3" in settings
    assert "hosenet.bandwidths=450Mbit/s,150Mbit/s" in settings
