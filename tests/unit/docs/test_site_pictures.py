"""The first pages' pictures: there, shown, and said to be of the run they are of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.record.metrics import LIVE
from testbed.record.reading import load_run
from tests.support.site_pictures import (
    FIGURES,
    GENERATED,
    PAGES,
    make,
    sentence,
    with_sentence,
)
from tests.unit.record import sample
from tests.unit.record.written import FIG10, write_run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_both_pictures_are_on_the_first_pages(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in ("live-page.png", "bandwidth-scaling.png"):
        assert f"figures/{name})" in text
        assert (FIGURES / name).read_bytes().startswith(b"\x89PNG")
    generated = GENERATED.search(text)
    assert generated is not None
    assert "`testbed watch` at" in " ".join(generated[0].split())


def test_the_sentence_says_where_the_run_was(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.main_example(), FIG10)
    recorded = load_run(folder.path)
    simulated = replace(
        recorded, summary=replace(recorded.summary, backend="sim")
    )
    assert "in the simulator: the page" in sentence(simulated, 17.0)
    live = replace(
        recorded, summary=replace(recorded.summary, backend=LIVE)
    )
    said = sentence(live, 17.5)
    verdict = live.summary.fidelity.verdict
    assert f"on the live network, fidelity {verdict}" in said
    assert "at 17.5 s" in said
    page = PAGES[0].read_text("utf-8")
    changed = with_sentence(page, said)
    assert said.split(":")[0] in " ".join(changed.split())
    assert with_sentence(changed, said) == changed


def test_a_run_of_another_file_is_refused(tmp_path: Path) -> None:
    folder, _ = write_run(tmp_path, sample.preempting())
    with pytest.raises(RuntimeError, match="is no run of"):
        make(str(folder.path), 1.0)
