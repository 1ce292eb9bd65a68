"""Failures on the time axis: a band while a link or a server is lost, a line at
a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed import events
from testbed.report.plot_style import BAD, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BEGINS = {
    events.LinkFailed: "link lost",
    events.ServerFailed: "server lost",
    events.SwitchRestarted: "switch restarted",
    events.ControllerKilled: "controller killed",
}
_ENDS = {
    events.LinkRestored: "link lost",
    events.ServerRestored: "server lost",
}
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


@dataclass(frozen=True)
class Outage:
    """A failure from its begin to its end, which is the run's where it lasts;
    ``part`` its name.

    A restart takes no time.
    """

    kind: str
    part: str
    begin_s: float
    end_s: float

    @property
    def lasting(self) -> bool:
        return self.kind in _ENDS.values()

    def sentence(self) -> str:
        """The failure in words."""
        when = f"At {self.begin_s:.1f} s"
        if self.lasting:
            when = f"From {self.begin_s:.1f} s to {self.end_s:.1f} s"
        return f"{when} {self.part} was {self.kind.split()[1]}."


def outages(
    stream: Iterable[events.Event], topology: Mapping[str, Any]
) -> list[Outage]:
    """All failures of a run, in order of their begin."""
    failed: list[Outage] = []
    now_s = 0.0
    lasting: dict[tuple[str, str], int] = {}
    for event in stream:
        now_s = event.t
        kind = _BEGINS.get(type(event)) or _ENDS.get(type(event))
        if kind is None:
            continue
        part = _name(event, topology)
        if type(event) in _ENDS:
            begun = lasting.pop((kind, part), None)
            if begun is not None:
                failed[begun] = replace(failed[begun], end_s=now_s)
        # A damaged folder's part may fail while it is lost.
        elif (kind, part) not in lasting:
            outage = Outage(kind, part, now_s, now_s)
            if outage.lasting:
                lasting[kind, part] = len(failed)
            failed.append(outage)
    for index in lasting.values():
        failed[index] = replace(failed[index], end_s=now_s)
    return failed


def _name(event: events.Event, topology: Mapping[str, Any]) -> str:
    """The part that an event is about; a damaged folder has numbers of nothing."""
    names = topology["names"]
    if isinstance(event, events.LinkFailed | events.LinkRestored):
        nodes = _ends(event.link, topology)
        if nodes:
            return " – ".join(_node(names, node) for node in nodes)
    for field in ("switch", "server"):
        node = getattr(event, field, None)
        if node is not None:
            return _node(names, node)
    return "the controller"


def _ends(link: int, topology: Mapping[str, Any]) -> list[int]:
    """The nodes at a link's ends, as far as the topology has them."""
    nodes: list[int] = []
    if link >= 0:
        for end in ("lower", "upper"):
            nodes += topology["links"][end][link : link + 1]
    return nodes


def _node(names: Sequence[str], node: int) -> str:
    if 0 <= node < len(names):
        return names[node]
    return f"node {node}"


def draw(
    axes: Axes, failed: Iterable[Outage], unit_s: float, **extent: Any
) -> None:
    """Bands below what is drawn and lines above, one of each kind with a label
    for the legend.

    ``extent``: where they reach less far than the axes.
    """
    # Labels from before count: the rows of a heat map are drawn one call
    # each on the same axes.
    labelled = set(axes.get_legend_handles_labels()[1])
    for outage in failed:
        looks = {"zorder": 3, **_LOOKS[outage.kind], **extent}
        if outage.lasting:
            # matplotlib draws bars at 1 and curves at 2.
            looks["zorder"] = 0.5
        looks["label"] = "" if outage.kind in labelled else outage.kind
        labelled.add(outage.kind)
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


def sentences(failed: Iterable[Outage]) -> str:
    """The bands and lines in words."""
    return " ".join(outage.sentence() for outage in failed)
