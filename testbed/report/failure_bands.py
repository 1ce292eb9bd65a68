"""Failures on the time axis: a band while a link or a server is lost, a line at a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
_ENDS = {events.LinkRestored: "link lost", events.ServerRestored: "server lost"}
_LOOKS: dict[str, Any] = {
    "link lost": {"facecolor": BAD, "alpha": 0.13, "linewidth": 0},
    "server lost": {"facecolor": BAD, "alpha": 0.28, "linewidth": 0},
    "switch restarted": {"color": BAD, "linewidth": 1.1, "linestyle": (0, (5, 2))},
    "controller killed": {"color": MUTED, "linewidth": 1.1, "linestyle": (0, (1, 1.5))},
}


@dataclass(frozen=True)
class Outage:
    """A failure from its begin to its end, which is the run's where it lasts; ``part`` its name.

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
        until = f"From {self.begin_s:.1f} s to {self.end_s:.1f} s" if self.lasting else ""
        return f"{until or f'At {self.begin_s:.1f} s'} {self.part} was {self.kind.split()[1]}."


def outages(stream: Iterable[events.Event], topology: Mapping[str, Any]) -> list[Outage]:
    """All failures of a run, in order of their begin."""
    found: list[Outage] = []
    now_s = 0.0
    lasting: dict[tuple[str, str], int] = {}
    for event in stream:
        now_s = event.t
        kind = _BEGINS.get(type(event)) or _ENDS.get(type(event))
        if kind is None:
            continue
        part = _name(event, topology)
        begun = lasting.pop((kind, part), None)
        if begun is not None:
            found[begun] = replace(found[begun], end_s=now_s)
        elif type(event) in _BEGINS:
            found.append(Outage(kind, part, now_s, now_s))
            lasting |= {(kind, part): len(found) - 1} if found[-1].lasting else {}
    for index in lasting.values():
        found[index] = replace(found[index], end_s=now_s)
    return found


def _name(event: events.Event, topology: Mapping[str, Any]) -> str:
    """The part that an event is about; a damaged folder has numbers of nothing."""
    nodes: tuple[Any, ...] = (getattr(event, "switch", None), getattr(event, "server", None))
    if isinstance(event, events.LinkFailed | events.LinkRestored):
        nodes = tuple(
            dict(enumerate(topology["links"][e])).get(event.link) for e in ("lower", "upper")
        )
    names = dict(enumerate(topology["names"]))
    return " – ".join(names.get(n, f"node {n}") for n in nodes if n is not None) or "the controller"


def draw(axes: Axes, failed: Iterable[Outage], unit_s: float, **more: Any) -> None:
    """Bands below what is drawn and lines above, one of each kind with a label for the legend.

    ``more``: what differs from their looks, as their vertical extent.
    """
    labelled = set(axes.get_legend_handles_labels()[1])
    for each in failed:
        looks = {"zorder": 0.5 if each.lasting else 3, **_LOOKS[each.kind], **more}
        looks["label"] = "" if each.kind in labelled else each.kind
        labelled.add(each.kind)
        if each.lasting:
            axes.axvspan(each.begin_s / unit_s, each.end_s / unit_s, **looks)
        else:
            axes.axvline(each.begin_s / unit_s, **looks)


def of_link(failed: Iterable[Outage], *links: str) -> list[Outage]:
    """Failures of any of these directed links, ``a -> b``."""
    named = [set(link.split(" -> ")) for link in links]
    return [e for e in failed if e.kind == "link lost" and set(e.part.split(" – ")) in named]


def restarts(failed: Iterable[Outage]) -> list[Outage]:
    """Those that take no time."""
    return [each for each in failed if not each.lasting]


def sentences(failed: Iterable[Outage]) -> str:
    """The bands and lines in words."""
    return " ".join(each.sentence() for each in failed)
