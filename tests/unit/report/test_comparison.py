"""The table of policies side by side: nothing is cut off, however narrow the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from testbed.play.playing import dry_run
from testbed.record.conclusion import conclude
from testbed.record.folder import RunFolder
from testbed.record.metrics import Summary
from testbed.report.result_tables import comparison_table
from testbed.spec.experiment_file import load_experiment

NAMES = ("dcloud-gamma=0.12", "dcloud-ts", "vc")


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> list[Summary]:
    base = tmp_path_factory.mktemp("runs")
    path = base / "x.yaml"
    path.write_text(
        "name: x\n"
        "topology: {kind: tree, fanout: [4], links: 1 Gbit/s, slots_per_server: 4}\n"
        "policies: [{name: dcloud, gamma: 12 %}, dcloud-ts, vc]\n"
        "workload: {kind: batch, jobs: 5, vms: {mean: 3}}\n"
    )
    experiment = load_experiment(path)
    found = []
    for policy in experiment.policies:
        folder = RunFolder.create(base, policy.label, 1)
        with folder.open_events() as log:
            for event in dry_run(experiment, policy):
                log(event)
        found.append(conclude(folder, wall_s=1.0).summary)
    return found


def shown(summaries: list[Summary], width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(
        comparison_table(summaries, width)
    )
    return text.getvalue().splitlines()


@pytest.mark.parametrize(
    ("width", "across"), [(200, True), (80, False), (60, False)]
)
def test_every_name_and_figure_is_whole(
    summaries: list[Summary], width: int, *, across: bool
) -> None:
    lines = shown(summaries, width)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in text
    assert all(name in text for name in NAMES)
    assert all(
        heading in text for heading in ("finished", "mean wait", "revenue")
    )
    assert (
        any(all(name in line for name in NAMES) for line in lines)
        is not across
    )
    for summary in summaries:
        assert f"{summary.revenue:,.2f} $" in text
