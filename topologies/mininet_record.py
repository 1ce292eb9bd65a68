"""A Mininet network as plain values: its nodes and links with their options.

One process executes a Python file and another uses its network: the record goes
between them as JSON. This module imports no other of the project.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Options = dict[str, Any]
MOST_NAMED = 5
"""Nodes or links that a message names."""


def named(names: list[str]) -> str:
    """The first of the names, and the number of the others."""
    text = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        text += f" and {len(names) - MOST_NAMED:,} more"
    return text


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
    def of_topo(
        cls,
        topo: Any,
        options_by_class: Callable[[str, str, Options], Options | None]
        | None = None,
    ) -> MininetRecord:
        """The record of a ``mininet.topo.Topo``, or of an object like it.

        ``options_by_class``: from a link's ends and options, those that it has
        by a class of the file's own; None where they cannot be found.
        """
        record = cls()
        for name in topo.nodes(sort=False):
            options = dict(topo.nodeInfo(name))
            options["isSwitch"] = topo.isSwitch(name)
            record.nodes[name] = options
        unread: dict[str, list[str]] = {}
        for end, other, stated in topo.iterLinks(withInfo=True):
            # A class as `partial(TCLink, bw=10)` brings options, which the
            # link's own override.
            of_class = getattr(stated.get("cls"), "keywords", {})
            options = {**of_class, **stated}
            classes = _own_classes(stated)
            if classes and options_by_class is not None:
                as_made = options_by_class(end, other, stated)
                if as_made:
                    options = as_made
                    classes = ""
            if classes:
                unread.setdefault(classes, []).append(f"{end}<->{other}")
            record.links.append((end, other, options))
        for name, links in unread.items():
            record.left_out.append(
                f"left out, what {name} sets for {named(links)}: its code cannot"
                " be executed here; write bw, delay and the like in addLink"
            )
        return record


def _own_classes(options: Options) -> str:
    """Names of a link's classes that may set options themselves; or empty.

    Mininet's own classes of links set none; those of interfaces are asked for
    because they do.
    """
    names = []
    for key in ("cls", "intf", "cls1", "cls2"):
        kind = options.get(key)
        kind = getattr(kind, "func", kind)
        of_mininet = getattr(kind, "__module__", "").startswith("mininet.")
        if kind and not (key == "cls" and of_mininet):
            names.append(getattr(kind, "__name__", type(kind).__name__))
    return ", ".join(dict.fromkeys(names))
