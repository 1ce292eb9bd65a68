"""A Mininet network as plain values: its nodes and links with their options.

One process executes a Python file and another uses its network: the record goes
between them as JSON. This module imports no other of the project.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Options = dict[str, Any]


@dataclass
class MininetRecord:
    """Nodes by name in order of addition, and links as ``(end, end, options)``.

    A node's option ``isSwitch`` tells a switch from a host. ``left_out``: a
    sentence for each part of the network that is not kept.
    """

    nodes: dict[str, Options] = field(default_factory=dict)
    links: list[tuple[str, str, Options]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def is_switch(self, name: str) -> bool:
        return bool(self.nodes[name].get("isSwitch"))

    @classmethod
    def of_topo(cls, topo: Any) -> MininetRecord:
        """The record of a ``mininet.topo.Topo``, or of an object like it."""
        record = cls()
        for name in topo.nodes(sort=False):
            options = dict(topo.nodeInfo(name))
            options["isSwitch"] = topo.isSwitch(name)
            record.nodes[name] = options
        for end, other, options in topo.iterLinks(withInfo=True):
            # A class as `partial(TCLink, bw=10)` brings options, which the
            # link's own override.
            of_class = getattr(options.get("cls"), "keywords", {})
            record.links.append((end, other, {**of_class, **options}))
        return record
