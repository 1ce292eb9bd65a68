"""A run as one file that any browser opens without a server.

The file has the page's script and style. Beside them it has a compressed
recording: the run's state at some moments, and the histories of jobs, links and
nodes. Its content security policy lets it load nothing.
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
"""Number of equal intervals between the recorded states of a run."""
MAX_ITEMS = 300
"""Limit of the histories of each kind: of jobs, of links and of nodes."""
MAX_EVENTS_READ = 3_000_000
"""Limit of the product of jobs and events: each job's history is one pass over
all events.
"""

_SECURITY_POLICY = (
    "default-src 'none'; script-src '{digest}';"
    " style-src 'unsafe-inline'; img-src data:"
)
# Browsers neither run nor show a script of type text/plain: it holds the
# recording.
_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
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
    """The page of a run's folder, as HTML.

    Raises BadInput where the folder is no run's, has no events yet, or is
    damaged.
    """
    runs = []
    for run in FollowedFolder(path).new_runs():
        run.refresh()
        if run.trouble:
            raise BadInput(run.trouble)
        # A policy that was stopped before its first event has no page.
        if run.events:
            runs.append(_recorded(run))
    if not runs:
        raise BadInput(f"{path} has no events yet", "share it later")
    static = files("testbed.web") / "static"
    script = (static / "page.js").read_text("utf-8")
    # Names from experiment files cannot become code: the policy allows one
    # script, by its digest, and the recording is in base64, which has no tags.
    return _PAGE.format(
        policy=_SECURITY_POLICY.format(digest=_digest(script)),
        title=escape(runs[0]["header"]["name"]),
        style=(static / "page.css").read_text("utf-8"),
        recording=_packed({"runs": runs}),
        script=script,
    )


def _digest(script: str) -> str:
    """The expression that allows a script in a content security policy."""
    # Browsers digest all text between the tags: the page must not add even a
    # line end to the script.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest())
    return f"sha256-{digest.decode()}"


def _packed(value: dict[str, Any]) -> str:
    """A value as JSON, compressed by gzip, in base64.

    Browsers can decompress gzip without a library.
    """
    text = json.dumps(value, separators=(",", ":"))
    # No time in the header, so that the same run makes the same file.
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
    """The state at evenly spaced moments of the run, in their order."""
    # One player for all: only seeking backwards starts at the first event.
    player = Player(run)
    length_s = run.state.now_s - run.begin_s
    for number in range(MOMENTS + 1):
        player.seek(run.begin_s + length_s * number / MOMENTS)
        yield player.frame()


def _items(run: FollowedRun) -> Iterator[tuple[str, dict[str, Any]]]:
    """Histories of jobs, links and nodes, each with its kind and name.

    A large run has those of its first MAX_ITEMS, or of fewer jobs.
    """
    n_jobs = min(MAX_ITEMS, MAX_EVENTS_READ // max(1, len(run.events)))
    names: dict[ItemKind, Iterable[object]] = {
        "job": list(run.state.tally.lives.jobs)[:n_jobs]
    }
    layout = run.state.layout
    if layout is not None:
        names["link"] = range(min(MAX_ITEMS, len(layout.links)))
        names["node"] = range(min(MAX_ITEMS, len(layout.nodes)))
    for kind, names_of_kind in names.items():
        for name in names_of_kind:
            yield f"{kind} {name}", run.item(kind, str(name))
