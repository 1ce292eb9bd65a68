"""A live figure on the live network: run, simulated, replayed, judged, kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproductions import configuration
from reproductions.configuration import Variant
from reproductions.figure_runs import (
    LiveReproduced,
    Request,
    reproduce_live,
)
from reproductions.live_backends import Machine
from reproductions.live_figure import (
    MEDIAN,
    SUCCESS,
    WALL,
    LiveFigure,
)
from reproductions.published_figure import Panel
from testbed.backends.emu.emulation import LiveOptions
from tests.support.made_claims import backends_agree, replays_alike
from tests.support.own_addresses import free_port

EXAMPLE = """
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.02, time: 2}
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 4, bandwidth: 400 Mbit/s, duration: 4 s, deadline: 200 s}
    - {id: b, vms: 8, bandwidth: 400 Mbit/s, duration: 4 s, deadline: 200 s}
"""
SERIES, XS = ("VC",), (1.0,)
FIGURE = LiveFigure(
    name="small-live",
    title="Two jobs",
    source="nobody",
    x_label="x",
    xs=XS,
    series=SERIES,
    variant=lambda *_: Variant("small.yaml", "vc"),
    panels=(Panel(SUCCESS),),
    claims=(backends_agree(SERIES, XS), replays_alike(SERIES, XS)),
    also=(MEDIAN, WALL),
    seeds=1,
)


def run(out: Path, prefix: str) -> LiveReproduced:
    options = LiveOptions(prefix, free_port(), free_port())
    backends = Machine(["testbed"], "testbed", options)
    request = Request(out, 1, quick=False, command=["testbed"])
    return reproduce_live(FIGURE, request, backends, lambda _: None)


def test_a_live_figure(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.yaml").write_text(EXAMPLE)
    monkeypatch.setattr(configuration, "FOLDER", tmp_path)
    monkeypatch.setenv("HOSENET_STATE_DIR", str(tmp_path / "state"))
    found = run(tmp_path / "out", prefix)
    outcome = found.outcomes["VC", 1.0][0]
    # One of the two is turned away for want of slots, whichever backend it is.
    assert [row.outcome for row in outcome.live.rows] == [
        "finished",
        "rejected",
    ]
    assert outcome.replay_differs == ""
    assert outcome.comparison.accepted_differ == ()
    stamp = (outcome.live.path / "events.jsonl").stat().st_mtime_ns
    again = run(tmp_path / "out", prefix).outcomes["VC", 1.0][0]
    assert (again.live.path / "events.jsonl").stat().st_mtime_ns == stamp
