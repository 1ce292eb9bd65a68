"""The snippets of docs/results-in-pandas.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.cli import main

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.slow
def test_the_snippets_run_one_after_another(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = re.search(
        r"```yaml\n(.*?)```",
        (DOCS / "start.md").read_text("utf-8"),
        re.DOTALL,
    )
    assert found is not None
    (tmp_path / "two-jobs.yaml").write_text(
        found.group(1), encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    assert main.run(["simulate", "two-jobs.yaml"]) == 0
    capsys.readouterr()
    names: dict[str, object] = {}
    page = (DOCS / "results-in-pandas.md").read_text("utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "results-in-pandas.md", "exec"), names)  # noqa: S102 - our own page
    printed = capsys.readouterr().out
    assert "rejected" in printed
    assert "not enough slots: 4 asked, 2 free" in printed
    assert "first on [server, VMs] [[0, 2], [1, 2], [2, 2]]" in printed
