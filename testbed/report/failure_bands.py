"""Failures on the time axis and in words: a band while a link or a server is
lost, a line at a restart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.foreign_text import plain_text
from testbed.record.failure_times import Outage
from testbed.report.labels import capital, seconds_text
from testbed.report.plot_style import BAD, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# matplotlib draws bars at 1 and curves at 2: bands are below, lines above.
_BAND: Any = {"facecolor": BAD, "linewidth": 0, "zorder": 0.5}
_LINE: Any = {"linewidth": 1.1, "zorder": 3}
_LOOKS: dict[str, Any] = {
    "link lost": {**_BAND, "alpha": 0.13},
    "server lost": {**_BAND, "alpha": 0.28},
    "switch restarted": {**_LINE, "color": BAD, "linestyle": (0, (5, 2))},
    "controller killed": {
        **_LINE,
        "color": MUTED,
        "linestyle": (0, (1, 1.5)),
    },
}
KIND_LABELS = {kind: kind for kind in _LOOKS}
MAX_NAMED = 6
"""Failures that a caption names."""


def draw(
    axes: Axes,
    failed: Iterable[Outage],
    unit_s: float,
    labels: Mapping[str, str] = KIND_LABELS,
    **extent: Any,
) -> None:
    """Draws bands below the other marks and lines above them. The first of each
    kind has a label for the legend.

    ``labels``: of each kind. ``extent``: matplotlib's limits of a band that does
    not reach over all of the axes.
    """
    # Labels of earlier calls count: a heat map's rows are drawn by a call each.
    labelled = set(axes.get_legend_handles_labels()[1])
    for outage in failed:
        label = labels[outage.kind]
        looks = {**_LOOKS[outage.kind], "label": label, **extent}
        if label in labelled:
            looks["label"] = ""
        labelled.add(label)
        begin = outage.begin_s / unit_s
        if outage.lasting:
            axes.axvspan(begin, outage.end_s / unit_s, **looks)
        else:
            axes.axvline(begin, **looks)


def of_link(failed: Iterable[Outage], *links: str) -> list[Outage]:
    """Failures of any of these directed links, ``a -> b``."""
    # Without an order: a link that is lost is lost in both directions.
    ends = [set(link.split(" -> ")) for link in links]
    lost = [outage for outage in failed if outage.kind == "link lost"]
    return [
        outage for outage in lost if set(outage.part.split(" – ")) in ends
    ]


def restarts(failed: Iterable[Outage]) -> list[Outage]:
    """Failures that take no time."""
    return [outage for outage in failed if not outage.lasting]


def band_labels(failed: Iterable[Outage]) -> dict[str, str]:
    """A legend's label of each kind: the part of its only failure, else their
    number; for what was lost also its return.
    """
    of_kind = defaultdict(list)
    for outage in failed:
        of_kind[outage.kind].append(outage)
    return {kind: _label(kind, alike) for kind, alike in of_kind.items()}


def _label(kind: str, alike: Sequence[Outage]) -> str:
    """``link a – b lost, not restored``; ``link lost (3, 2 of them restored)``."""
    first = alike[0]
    n_restored = sum(outage.restored for outage in alike)
    if len(alike) > 1:
        label = f"{kind} ({len(alike)}"
        if first.lasting:
            label += f", {n_restored} of them restored"
        return f"{label})"
    if not first.lasting:
        return f"{_named(first)} {kind.split()[1]}"
    back = "restored" if n_restored else "not restored"
    return f"{_named(first)} lost, {back}"


def _named(outage: Outage) -> str:
    """The failed part with its kind, unless its name has the kind."""
    thing = outage.kind.split()[0]
    part = plain_text(outage.part)
    if thing in part:
        return part
    return f"{thing} {part}"


def clause(outage: Outage) -> str:
    """A failure as a clause, without a full stop."""
    part = _named(outage)
    if part != plain_text(outage.part):
        part = f"the {part}"
    event = f"{part} was {outage.kind.split()[1]}"
    begin = seconds_text(outage.begin_s)
    if not outage.lasting:
        return f"{event} at {begin}"
    if outage.restored:
        return f"{event} from {begin} to {seconds_text(outage.end_s)}"
    return f"{event} at {begin} and did not come back"


def sentences(failed: Sequence[Outage], most: int | None = None) -> str:
    """Failures in words; of more than ``most`` the first ones and a count."""
    texts = [f"{capital(clause(outage))}." for outage in failed[:most]]
    if most is not None and len(failed) > most:
        texts.append(f"And {len(failed) - most:,} more.")
    return " ".join(texts)
