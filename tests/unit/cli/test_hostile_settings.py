"""Settings of the command line (`--set`) that nobody types by mistake: each is
told as a mistake, in printable text.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import main
from tests.unit.cli.test_foreign_text import ORDERS

FILE = """\
name: settings
seed: 1
topology: {kind: tree, fanout: [2], links: 1 Gbit/s, slots_per_server: 2}
policies: [{name: vc}]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 2 s}]}
"""
DEEP = 20_000
DEEP_KEY = 3_000
"""Beyond what Python's stack holds, too; a key is looked up part by part."""
KEYS = {
    "dot": ".",
    "dots": "..",
    "empty part": "topology..kind",
    "ends in a dot": "topology.",
    "opens": "policies[",
    "no index": "policies[]",
    "closes twice": "policies[0]]",
    "negative": "policies[-1]",
    "far": "policies[99999999999999999999]",
    "fraction": "policies[0.5]",
    "exponent": "policies[1e9]",
    "deep": "a." * DEEP_KEY + "a",
    "deep indices": "policies" + "[0]" * DEEP_KEY,
    "long": "a" * 100_000,
    "below a number": "seed.x.y",
    "index of a number": "seed[0]",
    "name of a list": "policies.name",
    "python's": "__class__.__init__.__globals__",
    "path": "/etc/passwd",
    "zero": "se\0ed",
    "order": "\x1b[2Jseed",
    "backwards": "\u202eseed",
    "no text": "seed\udcff",
}
VALUES = {
    "opens": "[",
    "opens braces": "{",
    "deep": "[" * DEEP,
    "deep and closed": "[" * DEEP + "]" * DEEP,
    "deep braces": "{a: " * DEEP,
    "itself": "&a [*a]",
    "laughs": "[&a [1,1,1,1,1,1,1,1,1], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a],"
    " &c [*b,*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c,*c],"
    " &e [*d,*d,*d,*d,*d,*d,*d,*d,*d], &f [*e,*e,*e,*e,*e,*e,*e,*e,*e],"
    " &g [*f,*f,*f,*f,*f,*f,*f,*f,*f], [*g,*g,*g,*g,*g,*g,*g,*g,*g]]",
    "unknown alias": "*nobody",
    "code": "!!python/object/apply:os.system [id]",
    "tag": "!unknown x",
    "bytes": "!!binary aGVsbG8=",
    "set": "!!set {a, b}",
    "huge": "1e999",
    "digits": "9" * 5_000,
    "infinite": ".inf",
    "no number": ".nan",
    "date": "2001-01-01",
    "merge": "{<<: {a: 1}}",
    "two documents": "1\n---\n2",
    "block": "|\n  x",
    "tab": "\tx: 1",
    "zero": "a\0b",
    "order": "\x1b]0;x\x07",
    "no text": "\udcff",
    "long": "x" * 1_000_000,
}
PLACES = (
    "seed",
    "topology.kind",
    "policies",
    "workload.jobs[0].id",
    "name",
)
EVERY = {
    **{f"key: {name}": f"{key}=1" for name, key in KEYS.items()},
    **{
        f"{place}: {name}": f"{place}={value}"
        for place in PLACES
        for name, value in VALUES.items()
    },
}
LARGE = ("deep", "laughs", "long")
SETTINGS = [
    pytest.param(name, marks=pytest.mark.slow)
    if any(word in name for word in LARGE)
    else name
    for name in EVERY
]
"""Names of all; the large ones take a second each to be read."""


def unharmed(setting: str, file: Path) -> int:
    """The command's exit code."""
    file.write_text(FILE, encoding="utf-8")
    return main.run(["validate", str(file), "--set", setting])


@pytest.mark.short("key: ", "seed: ", "policies: ")
@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_is_good_or_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = unharmed(EVERY[name], tmp_path / "a.yaml")
    said = "".join(capsys.readouterr())
    assert code in (0, 2), said[:2000]
    assert not ORDERS.search(said)
    assert "Traceback" not in said
    # A mistake is quoted a few times at most.
    assert len(said) < 4 * len(EVERY[name]) + 10_000
