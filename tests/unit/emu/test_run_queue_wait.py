"""A thread's wait for a processor, as the kernel counts it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.backends.emu import process_progress, sampling
from testbed.backends.emu.process_progress import spent
from testbed.backends.emu.sampling import Waiting, Watch
from tests.unit.emu.test_sampling import watching

PID = 4711


class Kernel:
    """``schedstat`` and ``stat`` in ``/proc/4711``, and the clock beside it."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 100.0
        self._file = folder / str(PID) / "schedstat"
        self._file.parent.mkdir()
        self._file.with_name("stat").write_text(f"{PID} (a switch) S 1")
        self._waited_s = 0.0
        self.passed(0.0, waited_s=0.0)

    def passed(self, time_s: float, waited_s: float) -> None:
        self.now_s += time_s
        self._waited_s += waited_s
        self._file.write_text(
            f"123456789 {round(self._waited_s * 1e9)} 42\n"
        )

    def end(self) -> None:
        self._file.unlink()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel(tmp_path)
    monkeypatch.setattr(process_progress, "PROC", tmp_path)
    monkeypatch.setattr(sampling.time, "monotonic", lambda: made.now_s)
    return made


def test_each_sample_is_the_share_of_its_own_time(kernel: Kernel) -> None:
    waiting = Waiting(PID)
    kernel.passed(2.0, waited_s=0.5)
    assert waiting.sample() == pytest.approx(0.25)
    kernel.passed(1.0, waited_s=1.0)
    assert waiting.sample() == pytest.approx(1.0)
    kernel.passed(1.0, waited_s=0.0)
    assert waiting.sample() == 0.0


def test_a_switch_that_has_ended_says_nothing(kernel: Kernel) -> None:
    waiting = Waiting(PID)
    kernel.passed(1.0, waited_s=0.0)
    kernel.end()
    assert waiting.sample() is None


def test_the_kernel_counts_for_this_very_process() -> None:
    before = spent(os.getpid())
    after = spent(os.getpid())
    assert before is not None
    assert after is not None
    assert 0.0 <= before.waited_s <= after.waited_s


def test_a_watch_without_a_switch_does_not_judge_it() -> None:
    watch: Watch = watching()
    assert "starved switch" not in {
        finding.check for finding in watch.findings()
    }
