"""A run as one file that any browser opens without a server.

The file has the page's script and style, the state at some moments and the
histories of items, compressed. Its content security policy lets it load
nothing.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from testbed.errors import BadInput
from testbed.web.followed_run import (
    FollowedFolder,
    FollowedRun,
    ItemKind,
    Player,
)

MOMENTS = 120
MAX_ITEMS = 300
MAX_EVENTS_READ = 3_000_000
"""The most events that are read for the histories of jobs, in a pass per job."""

_RULES = (
    "default-src 'none'; script-src '{digest}';"
    " style-src 'unsafe-inline'; img-src data:"
)
# The recording is in a script of a type that browsers do not run: they
# leave its text as it is.
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{rules}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="page"></main>
<noscript><p>This page needs JavaScript.</p></noscript>
<script id="recording" type="text/plain">{recording}</script>
<script>{script}</script>
</body>
</html>
"""


def shared_page(path: Path) -> str:
    """The page of a run's folder. Raises BadInput where that is none, or damaged."""
    runs = []
    for run in FollowedFolder(path).new_runs():
        run.refresh()
        if run.trouble:
            raise BadInput(run.trouble)
        runs.append(_recorded(run))
    static = files("testbed.web") / "static"
    script = (static / "page.js").read_text("utf-8")
    # Names from experiment files cannot become code: the policy allows one
    # script, by its digest, and the recording is text of 64 characters.
    return _PAGE.format(
        rules=_RULES.format(digest=_digest(script)),
        title=escape(runs[0]["header"]["name"]),
        style=(static / "page.css").read_text("utf-8"),
        recording=_packed({"runs": runs}),
        script=script,
    )


def _digest(script: str) -> str:
    """A script's source expression for a content security policy."""
    # Browsers digest all that stands between the tags: not even a line may
    # be added around the script.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    return f"sha256-{digest.decode()}"


def _packed(value: dict[str, Any]) -> str:
    """A JSON value as base64 of its gzip, which browsers unpack by themselves."""
    text = json.dumps(value, separators=(",", ":"))
    # Without the time, so that the same run makes the same file.
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _recorded(run: FollowedRun) -> dict[str, Any]:
    return {
        "header": run.header(),
        "label": {**run.label(), "status": run.status, "trouble": ""},
        "frames": list(_frames(run)),
        "items": dict(_items(run)),
        "lanes": run.lanes(),
    }


def _frames(run: FollowedRun) -> Iterator[dict[str, Any]]:
    """The state at evenly spaced moments of the run."""
    # In order: seeking backwards would follow all events again.
    player = Player(run)
    length_s = run.state.now_s - run.begin_s
    for number in range(MOMENTS + 1):
        player.seek(run.begin_s + length_s * number / MOMENTS)
        yield player.frame()


def _items(run: FollowedRun) -> Iterator[tuple[str, dict[str, Any]]]:
    """Histories by kind and name; of a large run those of its first items."""
    n_jobs = min(MAX_ITEMS, MAX_EVENTS_READ // max(1, len(run.events)))
    names: dict[ItemKind, Iterable[object]] = {
        "job": list(run.state.tally.lives.jobs)[:n_jobs]
    }
    layout = run.state.layout
    if layout is not None:
        names["link"] = range(min(MAX_ITEMS, len(layout.links)))
        names["node"] = range(min(MAX_ITEMS, len(layout.nodes)))
    for kind, of_kind in names.items():
        for name in of_kind:
            yield f"{kind} {name}", run.item(kind, str(name))
