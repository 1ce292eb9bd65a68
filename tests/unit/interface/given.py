"""A small experiment as Python values and as a file, and its run by the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from testbed.cli import main

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "topology": {
        "kind": "tree",
        "fanout": [2, 2],
        "links": ["1 Gbit/s", "1 Gbit/s"],
        "slots_per_server": 2,
    },
    "policies": ["vc", {"name": "dcloud", "gamma": "12 %"}],
    "workload": {
        "kind": "jobs",
        "jobs": [
            {"id": "no", "vms": 3, "bandwidth": "400 Mbit/s", "duration": "6 s"},
            {"id": "1e3", "at": "2 s", "vms": 4, "bandwidth": "0.3 Gbit/s", "duration": "8 s"},
            {
                "id": "1.5", "at": "3.5 s", "vms": 5, "bandwidth": "900 Mbit/s",
                "duration": "5 s", "deadline": "60 s", "application": "sort",
            },
        ],
    },
}  # fmt: skip
TEXT = """\
name: small
seed: 3
topology: {kind: tree, fanout: [2, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 2}
policies: [vc, {name: dcloud, gamma: 12 %}]
workload:
  kind: jobs
  jobs:
    - {id: "no", vms: 3, bandwidth: 400 Mbit/s, duration: 6 s}
    - {id: "1e3", at: 2 s, vms: 4, bandwidth: 0.3 Gbit/s, duration: 8 s}
    - {id: "1.5", at: 3.5 s, vms: 5, bandwidth: 900 Mbit/s, duration: 5 s, deadline: 60 s,
       application: sort}
"""


def by_command(tmp_path: Path, text: str = TEXT, *arguments: str) -> Path:
    """The folder that ``testbed simulate`` makes of a file."""
    file, out = tmp_path / "small.yaml", tmp_path / "by-command"
    file.write_text(text, encoding="utf-8")
    assert (
        main.run(["simulate", str(file), "--out", str(out), *arguments])
        == 0
    )
    (folder,) = out.iterdir()
    return folder


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def event_records(path: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in path.read_text("utf-8").splitlines()
    ]
