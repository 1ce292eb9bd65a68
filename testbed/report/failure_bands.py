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

_LOOKS: dict[str, Any] = {
    "link lost": {"facecolor": BAD, "alpha": 0.13, "linewidth": 0},
    "server lost": {"facecolor": BAD, "alpha": 0.28, "linewidth": 0},
    "switch restarted": {
        "color": BAD,
        "linewidth": 1.1,
        "linestyle": (0, (5, 2)),
    },
    "controller killed": {
        "color": MUTED,
        "linewidth": 1.1,
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
    """Bands below what is drawn and lines above, one of each kind with a label
    for the legend.

    ``labels``: of each kind; ``extent``: where they reach less far than the
    axes.
    """
    # Labels from before count: the rows of a heat map are drawn one call
    # each on the same axes.
    labelled = set(axes.get_legend_handles_labels()[1])
    for outage in failed:
        looks = {"zorder": 3, **_LOOKS[outage.kind], **extent}
        if outage.lasting:
            # matplotlib draws bars at 1 and curves at 2.
            looks["zorder"] = 0.5
        label = labels[outage.kind]
        looks["label"] = "" if label in labelled else label
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
    shown = []
    for outage in failed:
        if (
            outage.kind == "link lost"
            and set(outage.part.split(" – ")) in ends
        ):
            shown.append(outage)
    return shown


def restarts(failed: Iterable[Outage]) -> list[Outage]:
    """Those that take no time."""
    return [outage for outage in failed if not outage.lasting]


def band_labels(failed: Iterable[Outage]) -> dict[str, str]:
    """Labels of kinds for a legend: the part of a kind's only failure, else
    their number, and whether what was lost came back.
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
    """The failed part with its kind, once."""
    thing = outage.kind.split()[0]
    part = plain_text(outage.part)
    if thing in part:
        return part
    return f"{thing} {part}"


def clause(outage: Outage) -> str:
    """A failure in words, without a full stop."""
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
    """The bands and lines in words; ``most``: only so many of them."""
    texts = [f"{capital(clause(outage))}." for outage in failed[:most]]
    if most is not None and len(failed) > most:
        texts.append(f"And {len(failed) - most:,} more.")
    return " ".join(texts)
