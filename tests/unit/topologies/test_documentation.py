import re
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[3] / "docs" / "topologies.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, str(DOCUMENT), "exec"), names)  # noqa: S102 - our own page
    return names


def test_the_builders_example_runs() -> None:
    names = run(blocks("python")[0])
    assert names["dcloud"].n_servers == 8000
    assert names["cluster"].n_links == 0


@pytest.mark.needs("mininet")
def test_the_mininet_example_runs() -> None:
    topo = run(blocks("python")[1])["topos"]["hosenet"]()
    assert len(topo.hosts()) == 8
    assert len(topo.switches()) == 7
