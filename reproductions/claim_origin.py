"""Remarks on where a claim file comes from: commits, environment, and values that
are others than this checkout's.

A remark refuses nothing: whoever wrote the file may have another history, or
have measured anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from reproductions.claim_ledger import path_of, rules_in
from reproductions.stored_results import DATA, FOLDER
from testbed.record.provenance import (
    TREE,
    code,
    content_at,
    known,
    unsound_commit,
)

Content = Mapping[str, Any]
# Git would take another word of a file from outside as an option.
COMMIT = re.compile("[0-9a-f]{7,64}")
ENVIRONMENT = ("machine", "python", "packages")
VALUES_OF = "values of "
PLAN = ("size", "seeds", "first_seed", "stages")


def remarks_on_origin(content: Content) -> list[str]:
    """Sentences on parts of a claim file that are missing, that cannot be
    checked, or that differ from this checkout.
    """
    with_history = code(TREE)["commit"] is not None
    remarks = []
    if not with_history:
        remarks.append(
            "its commits cannot be checked here: no checkout with a history"
        )
    unsound = _unsound(content["results"].get("code"), with_history)
    if unsound:
        remarks.append(f"the code of its runs: {unsound}")
    remarks += _on_live_runs(content["results"], with_history=with_history)
    if with_history:
        remarks += _on_ledgers(content)
    else:
        remarks += _on_digests(content)
    for part in ENVIRONMENT:
        if not content["environment"].get(part):
            remarks.append(f"its environment lacks {part}")
    remarks += _on_numbers(content["results"])
    remarks += _beside_stored(content["figure"], content["results"])
    return remarks


def _on_live_runs(results: Content, *, with_history: bool) -> Iterator[str]:
    """Remarks on live runs that cannot be taken again from the code that played
    them, one for each reason: a run that was kept has a code of its own.
    """
    reasons = set()
    for live_run in known(results, "runs", list) or ():
        reasons.add(_unsound(live_run, with_history))
    for reason in sorted(reasons - {""}):
        yield f"the code of a live run: {reason}"


def _unsound(runs: object, with_history: bool) -> str:
    """The reason why runs cannot be taken again from their code; empty where
    they can.
    """
    commit = known(runs, "commit", str)
    if not isinstance(runs, dict) or not _is_commit(commit):
        return "it names no commit"
    if with_history:
        return unsound_commit(runs)
    if runs.get("dirty"):
        return "taken with uncommitted changes"
    return ""


def _is_commit(word: str | None) -> bool:
    return word is not None and COMMIT.fullmatch(word) is not None


def _on_ledgers(content: Content) -> Iterator[str]:
    """Remarks on the commits of the rules in the file, and of its runs'."""
    rules = content["ledger"]["text"]
    named = {"its rules": content["ledger"]}
    if content["results"].get("ledger") is not None:
        named["its runs"] = content["results"]["ledger"]
    for whose, state in named.items():
        commit = state["commit"]
        if not _is_commit(commit):
            yield f"{whose} name no commit of the ledger"
            continue
        # Texts may differ in causes and quotations, which judge nothing.
        before = content_at(commit, path_of(content["figure"]))
        if before is None:
            yield f"{whose} name {commit}, which has no such ledger here"
        elif _rules(before) != _rules(rules):
            yield f"{whose} name {commit}, where the ledger has other rules"


def _on_digests(content: Content) -> Iterator[str]:
    """A remark where the runs name another state of the rules, whose text only
    a history could show.
    """
    of_runs = content["results"].get("ledger") or content["ledger"]
    digest = of_runs["digest"]
    if digest != content["ledger"]["digest"]:
        yield f"its runs name another state of its rules, {digest}"


def _rules(text: str) -> str:
    """The digest of what judges in a file; empty where it has another form."""
    try:
        return rules_in(text.encode())
    except (yaml.YAMLError, KeyError, TypeError):
        return ""


def _on_numbers(results: Content) -> Iterator[str]:
    """Remarks on measures that have fewer values than seeds, or more."""
    for name, points in _measures(results).items():
        numbers = {len(by_seed) for by_seed in points.values()}
        if numbers != {results["seeds"]}:
            yield f"{name} has not one value for each of its seeds"


def _beside_stored(section: str, results: Content) -> Iterator[str]:
    """Remarks on seeds and values that differ from the results beside the
    pages, where these are of the same commit.
    """
    path = TREE / FOLDER / DATA / f"{section}.json"
    if not path.exists():
        return
    stored = json.loads(path.read_text("utf-8"))
    commit = known(results, "code.commit", str)
    # Other code may well give other values.
    if commit is None or commit != stored["code"]["commit"]:
        return
    otherwise = f"not as stored here of {commit}"
    for part in PLAN:
        if results.get(part, []) != stored.get(part, []):
            yield f"{part}: {otherwise}"
    ours = _measures(stored)
    theirs = _measures(results)
    for name in sorted(ours.keys() | theirs.keys()):
        if _differ(ours.get(name, {}), theirs.get(name, {})):
            yield f"{VALUES_OF}{name}: {otherwise}"


Points = dict[tuple[str, float], list[float | None]]


def _measures(results: Content) -> dict[str, Points]:
    """The values by measure, series and place."""
    values: dict[str, Points] = {}
    for name, points in results.items():
        if not name.startswith(VALUES_OF):
            continue
        of_measure = values.setdefault(name.removeprefix(VALUES_OF), {})
        for series, x, by_seed in points:
            of_measure[series, float(x)] = by_seed
    return values


def _differ(ours: Points, theirs: Points) -> bool:
    """True where a point is missing, or a seed that both have is otherwise."""
    if ours.keys() != theirs.keys():
        return True
    for point, by_seed in ours.items():
        # One of both may have more seeds, which the other says nothing of.
        common = min(len(by_seed), len(theirs[point]))
        if by_seed[:common] != theirs[point][:common]:
            return True
    return False
