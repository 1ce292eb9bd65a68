"""Failures of a run as spans of time: lost links and servers, and restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed import events

if TYPE_CHECKING:
    from testbed.record.event_file import EventFile

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


@dataclass(frozen=True)
class Outage:
    """A failure of the part named ``part``, from its begin to its end.

    A part that is not ``restored`` is lost until the run's end. A restart takes
    no time.
    """

    kind: str
    part: str
    begin_s: float
    end_s: float
    restored: bool = False

    @property
    def lasting(self) -> bool:
        return self.kind in _ENDS.values()


def outages(file: EventFile) -> list[Outage]:
    """All failures of a run, in order of their begin. Raises BadInput where the
    first event is not the start of a run.
    """
    topology = file.started.topology
    failed: list[Outage] = []
    now_s = 0.0
    # The place in ``failed`` of each part that is lost now.
    lasting: dict[tuple[str, str], int] = {}
    for event in file.events:
        now_s = event.t
        kind = _BEGINS.get(type(event)) or _ENDS.get(type(event))
        if kind is None:
            continue
        part = _name(event, topology)
        if type(event) in _ENDS:
            index = lasting.pop((kind, part), None)
            if index is not None:
                failed[index] = replace(
                    failed[index], end_s=now_s, restored=True
                )
        # In a damaged folder a part may fail again while it is lost.
        elif (kind, part) not in lasting:
            outage = Outage(kind, part, now_s, now_s)
            if outage.lasting:
                lasting[kind, part] = len(failed)
            failed.append(outage)
    for index in lasting.values():
        failed[index] = replace(failed[index], end_s=now_s)
    return failed


def _name(event: events.Event, topology: Mapping[str, Any]) -> str:
    """The name of an event's part. In a damaged folder its number may be one that
    the topology lacks.
    """
    names = topology["names"]
    if isinstance(event, events.LinkFailed | events.LinkRestored):
        nodes = _nodes_of(event.link, topology)
        if not nodes:
            return f"link {event.link}"
        return " – ".join(_node(names, node) for node in nodes)
    for field in ("switch", "server"):
        node = getattr(event, field, None)
        if node is not None:
            return _node(names, node)
    return "the controller"


def _nodes_of(link: int, topology: Mapping[str, Any]) -> list[int]:
    """The nodes at a link's ends, as far as the topology has them."""
    nodes: list[int] = []
    if link >= 0:
        for end in ("lower", "upper"):
            # A slice, which is empty after the list's end.
            nodes += topology["links"][end][link : link + 1]
    return nodes


def _node(names: Sequence[str], node: int) -> str:
    if 0 <= node < len(names):
        return names[node]
    return f"node {node}"
