"""The ``failures`` section: links, servers, switches and the controller,
failing at given times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from testbed.failures import Failure, FailureKind
from testbed.spec.document import Location, did_you_mean
from testbed.spec.unit_types import Duration, PositiveDuration
from testbed.spec.validation import Section
from topologies.datacentre import DataCentre

_PARTS = ("link", "server", "switch", "controller")
_LASTING: Mapping[str, tuple[FailureKind, FailureKind]] = {
    "link": ("link_failed", "link_restored"),
    "server": ("server_failed", "server_restored"),
}


class FailureEntry(Section):
    """A failure: its time, one of link, server, switch and controller, and how
    long it lasts.
    """

    at: Duration
    """when, from the start of the run"""
    link: str | None = None
    """a link by its ends, as 'rack 0 - server 1': it carries nothing"""
    server: str | None = None
    """a server by its name: what runs on it is lost"""
    switch: str | None = None
    """a switch by its name: it is restarted"""
    controller: str | None = None
    """killed: it is killed, and started again"""
    lasts: PositiveDuration | None = None
    """of links and servers: for how long (default: for good)"""


def read_failures(
    entries: Sequence[FailureEntry],
    location: Location,
    centre: DataCentre | None,
) -> tuple[Failure, ...]:
    """Failures and their ends in order of time; what is wrong with an entry is
    reported.

    ``centre`` None: the topology cannot be read, and neither can the parts that
    entries name.
    """
    failures: list[tuple[Failure, Location]] = []
    for index, entry in enumerate(entries):
        for failure in _read(entry, location / index, centre):
            failures.append((failure, location / index))
    # At equal times ends first, then as in the file.
    failures.sort(key=_order)
    if centre is not None:
        _check_lost(failures, centre)
    return tuple(failure for failure, _ in failures)


def _check_lost(
    failures: Sequence[tuple[Failure, Location]], centre: DataCentre
) -> None:
    """Reports a part that fails while it is lost already: the time of its return
    would be ambiguous.
    """
    lost: dict[tuple[str, int], bool] = {}
    for failure, location in failures:
        kind, _, change = failure.kind.partition("_")
        fails = change == "failed"
        if fails and lost.get((kind, failure.part)):
            name = _name(centre, kind, failure.part)
            location.report(
                f"{name} fails at {failure.at_s:g} s, and is lost already"
            )
        lost[kind, failure.part] = fails


def _order(located: tuple[Failure, Location]) -> tuple[float, bool]:
    failure, _ = located
    return failure.at_s, not failure.kind.endswith("restored")


def _read(
    entry: FailureEntry, location: Location, centre: DataCentre | None
) -> list[Failure]:
    parts = [part for part in _PARTS if entry[part] is not None]
    if not entry.is_readable("at", "lasts", *_PARTS):
        return []
    if len(parts) != 1:
        named = f", not {' and '.join(parts)}" if parts else ""
        location.report(f"needs one of {', '.join(_PARTS)}{named}")
        return []
    kind = parts[0]
    if entry.lasts is not None and kind not in _LASTING:
        location.report(
            f"a {kind} comes back by itself: leave 'lasts' out",
            "lasts",
            at_key=True,
        )
    if kind == "controller":
        if entry.controller != "killed":
            location.report(
                f"must be 'killed', not {entry.controller!r}", kind
            )
        return [Failure(entry.at, "controller_killed")]
    if centre is None:
        return []
    part = _part(centre, kind, entry[kind], location / kind)
    if part is None:
        return []
    return _failure_and_end(entry, kind, part)


def _failure_and_end(
    entry: FailureEntry, kind: str, part: int
) -> list[Failure]:
    if kind not in _LASTING:
        return [Failure(entry.at, "switch_restarted", part)]
    fails, returns = _LASTING[kind]
    failures = [Failure(entry.at, fails, part)]
    if entry.lasts is not None:
        failures.append(Failure(entry.at + entry.lasts, returns, part))
    return failures


def _part(
    centre: DataCentre, kind: str, text: str, location: Location
) -> int | None:
    """A link's number, a server's or a switch's node; None where there is none
    of that name.
    """
    if kind == "link":
        return _link(centre, text, location)
    # Servers are numbered before switches.
    if kind == "server":
        first = 0
        last = centre.n_servers
    else:
        first = centre.n_servers
        last = centre.n_nodes
    known = centre.names[first:last]
    if text not in known:
        # Keys of a dictionary: a single name is both first and last.
        ends = dict.fromkeys([*known[:1], *known[-1:]])
        hint = did_you_mean(text, known) or f": {' to '.join(ends)}"
        location.report(f"unknown {kind} {text!r}{hint}")
        return None
    return first + known.index(text)


_CUT = re.compile(r"\s+<?-+>?\s+")
"""Between the ends of a link."""


def _link(centre: DataCentre, text: str, location: Location) -> int | None:
    named: list[set[str]] = []
    for lower, upper in zip(
        centre.link_lower.tolist(), centre.link_upper.tolist(), strict=True
    ):
        named.append({centre.names[lower], centre.names[upper]})
    # A name may contain " - ": every place to split the text is tried.
    stripped = text.strip()
    for cut in _CUT.finditer(stripped):
        lower_name = stripped[: cut.start()]
        upper_name = stripped[cut.end() :]
        both = {lower_name, upper_name}
        if both in named:
            return named.index(both)
    _report_no_link(named, text, location)
    return None


def _report_no_link(
    named: Sequence[set[str]], text: str, location: Location
) -> None:
    """Reports the end that no link has, or an example of a link's name."""
    if not named:
        location.report("there are no links")
        return
    ends = _CUT.split(text.strip())
    known = sorted(set[str]().union(*named))
    if len(ends) != 2:
        ends = []
    for end in ends:
        if end not in known:
            location.report(
                f"no link ends at {end!r}{did_you_mean(end, known)}"
            )
            return
    example = " - ".join(sorted(named[0]))
    location.report(f"no link is called {text!r}, as {example!r} is")


def _name(centre: DataCentre, kind: str, part: int) -> str:
    if kind == "link":
        return centre.link_name(2 * part)
    return centre.names[part]
