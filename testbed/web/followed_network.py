"""The network that is up as the page shows it, from the lines of its feed."""

from __future__ import annotations

import json
import shlex
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import BadInput
from testbed.foreign_text import plain_text
from testbed.web.followed_run import ItemKind, Status, drawn_number
from testbed.web.gauges import Gauge, network_gauges
from testbed.web.installed_lines import installed_on
from testbed.web.page_layout import PageLayout, page_layout
from testbed.web.run_state import SlotUse, shown

KEPT_SAMPLES = 900
"""Samples kept of each link, about one a second."""
KEPT_TOTALS = 3_600
"""Samples kept of the curves of the whole network, about one a second."""
ENDED = "the network is no longer up"
NO_JOBS: dict[str, Any] = {
    "ended": {},
    "jobs": [],
    "more_jobs": 0,
    "recent": [],
    "rejections": [],
    "fidelity": {"verdict": None, "notes": []},
}
"""A run's part of a frame, empty: the page reads runs and networks in one form."""


@dataclass(frozen=True)
class LinkRates:
    """Rates of all directed links over a sample, in bit/s of the experiment."""

    t: float
    reserved_bps: NDArray[np.float32]
    sent_bps: NDArray[np.float32]


class FollowedNetwork:
    """A standing network up to the last line of its feed.

    Seconds are the time that its samples cover. ``trouble``: why there is no
    further line, or empty.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.trouble = ""
        self.layout: PageLayout | None = None
        self.last: dict[str, Any] = {}
        self._first: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self._now_s = 0.0
        self._rates: deque[LinkRates] = deque(maxlen=KEPT_SAMPLES)
        self._totals: deque[dict[str, float]] = deque(maxlen=KEPT_TOTALS)
        # Without a lock: appending to a deque and taking from its other end
        # are atomic in Python.
        self._waiting: deque[str] = deque()
        # In a thread: a pipe does not hold a large network's whole line, and
        # reading one would block the server's loop until it is complete. A
        # daemon, so that the page can end while the thread waits for a line.
        self._reader = threading.Thread(
            target=self._read, args=(lines,), daemon=True
        )
        self._reader.start()

    def _read(self, lines: Iterable[str]) -> None:
        """Queues the feed's lines, from a thread of its own."""
        # The feed can be killed before its own last line, or within a line.
        for line in lines:
            if line.endswith("\n"):
                self._waiting.append(line)
        self._waiting.append(json.dumps({"end": ENDED}))

    def wait(self) -> None:
        """Waits until the feed has ended."""
        self._reader.join()

    def refresh(self) -> bool:
        """Reads the lines since the last call; False where there were none."""
        if self.trouble or not self._waiting:
            return False
        while self._waiting and not self.trouble:
            self._take(json.loads(self._waiting.popleft()))
        return True

    def _take(self, line: dict[str, Any]) -> None:
        if "end" in line:
            self.trouble = str(line["end"])
        elif "texts" in line:
            self._texts = line["texts"]
        elif "topology" in line:
            self._first = line
            self.layout = page_layout(line["topology"])
        else:
            self._take_sample(line)

    def _take_sample(self, line: dict[str, Any]) -> None:
        self._now_s += line["interval_s"]
        self.last = line
        # 32 bits: 900 samples of a large network's links are kept, and a
        # curve on a screen shows no more than their seven digits.
        rates = LinkRates(
            t=self._now_s,
            reserved_bps=np.array(line["reserved_bps"], np.float32),
            sent_bps=np.array(line["sent_bps"], np.float32),
        )
        self._rates.append(rates)
        self._totals.append(self._totals_of(line))

    @property
    def ended(self) -> bool:
        return bool(self.trouble)

    @property
    def status(self) -> Status:
        return "interrupted" if self.trouble else "live"

    def label(self) -> dict[str, str]:
        """The network as lists and metrics name it."""
        name = shown(self._first.get("name", "network"))
        return {"run": name, "policy": "", "kind": "network"}

    def gauges(self) -> Iterable[Gauge]:
        """Its latest state as metrics."""
        if self.layout is None or not self.last:
            return ()
        return network_gauges(self.layout, self.last)

    def header(self) -> dict[str, Any]:
        """The layout, and all that a page needs once."""
        header: dict[str, Any] = {
            "kind": "layout",
            "of": "network",
            "name": shown(self._first.get("name", "")),
            "policy": "",
            "backend": "live",
            "seed": None,
            "folder": shown(self._first.get("file", "")),
            "status": self.status,
            "trouble": self.trouble,
            "begin_s": 0.0,
            "end_s": self._now_s,
            "curves": list(self._totals),
        }
        if self.layout is not None:
            header["layout"] = self.layout.to_json()
        return header

    def _totals_of(self, line: dict[str, Any]) -> dict[str, float]:
        """Metrics that the page draws over time, at ``t``."""
        capacity_bps = 0.0
        if self.layout is not None:
            capacity_bps = float(self.layout.capacity_bps.sum())
        # A flat network has no links.
        capacity_bps = max(1.0, capacity_bps)
        return {
            "t": self._now_s,
            "running": len(line["tenants"]),
            "waiting": 0,
            "slots_used": line["slots_taken"],
            "reserved_share": sum(line["reserved_bps"]) / capacity_bps,
            "sent_share": sum(line["sent_bps"]) / capacity_bps,
        }

    def frame(self) -> dict[str, Any]:
        """All that changes on the page, as one JSON value."""
        frame: dict[str, Any] = {"kind": "frame", "mode": "live"}
        if self.layout is None or not self.last:
            return frame
        return (
            frame
            | NO_JOBS
            | {
                "at_s": self._now_s,
                "totals": self._totals[-1],
                "log": self._troubles(),
                "controller": self._parts(),
                "tenants": self.last["tenants"],
            }
            | self._drawing(self.layout)
        )

    def _drawing(self, layout: PageLayout) -> dict[str, Any]:
        """Use of each drawn link, VMs by drawn node, and the parts that are down."""
        last = self.last
        down = {layout.link_of[number] for number in last.get("down", ())}
        return {
            "reserved": layout.use(np.array(last["reserved_bps"], float)),
            "sent": layout.use(np.array(last["sent_bps"], float)),
            "placed": self._placed(layout),
            "down": {"links": sorted(down), "nodes": []},
        }

    def _troubles(self) -> list[tuple[float, str]]:
        """The network's trouble, and tenants' troubles that it does not name."""
        whole = self.last["trouble"]
        troubles = [whole]
        for tenant in self.last["tenants"]:
            if tenant["trouble"] not in whole:
                troubles.append(tenant["trouble"])
        return [(self._now_s, shown(text)) for text in troubles if text]

    def _parts(self) -> str:
        """The controller, and the switches, in words."""
        switches = self.last.get("switches", ())
        dead = [
            switch["name"] for switch in switches if not switch["forwards"]
        ]
        who = self.last["controller"] or "the testbed's controller"
        if dead:
            return f"{who}; ended: {', '.join(dead)}"
        return f"{who}; {len(switches)} Open vSwitch"

    def _placed(self, layout: PageLayout) -> dict[int, list[list[Any]]]:
        """VMs in their slots: drawn node -> tenant and number of VMs."""
        names = self._first["topology"]["names"]
        number_of = {name: number for number, name in enumerate(names)}
        slots = SlotUse(layout)
        for tenant in self.last["tenants"]:
            for server, count in tenant["placed"].items():
                slots.add(number_of[server], tenant["name"], count)
        return slots.to_json()

    def item(self, kind: ItemKind, name: str) -> dict[str, Any]:
        """A tenant, a drawn link or a drawn node. Raises BadInput where there is
        none of that name.
        """
        if kind == "job":
            return self._tenant(name)
        if self.layout is None:
            raise BadInput("the network's layout is not there yet")
        number = drawn_number(self.layout, kind, name)
        if kind == "link":
            return self._link(self.layout, number)
        return self._node(self.layout, number)

    def _tenant(self, name: str) -> dict[str, Any]:
        tenants = self.last.get("tenants", ())
        by_name = {tenant["name"]: tenant for tenant in tenants}
        if name not in by_name:
            raise BadInput(f"there is no tenant {shown(name)}")
        return {
            "title": f"tenant {shown(name)}",
            "facts": _tenant_facts(by_name[name]),
            "lines": [],
            # Not by `shown`: the feed has cut it already, at its own length.
            "text": plain_text(self._texts.get(name, "")),
            "command": f"sudo testbed tenant show {shlex.quote(name)}",
        }

    def _link(self, layout: PageLayout, number: int) -> dict[str, Any]:
        # Of several links that are drawn as one, the first is described.
        link = layout.links[number]
        # Directed links: that of link n upward is 2n, downward 2n + 1.
        upward = 2 * link.number
        directions = slice(upward, upward + 2)
        queued_bytes = sum(self.last.get("queued_bytes", ())[directions])
        dropped = sum(self.last.get("dropped", ())[directions])
        return {
            "title": f"link {shown(link.name)}",
            "facts": [
                ("queued", f"{queued_bytes} bytes"),
                ("dropped", f"{dropped} packets"),
            ],
            "lines": [],
            "curves": self._curves(layout, link.number),
            "text": self._on_link(link.number),
            "command": "sudo testbed top",
        }

    def _curves(
        self, layout: PageLayout, number: int
    ) -> list[dict[str, Any]]:
        """Both directions of a link of the data centre over time."""
        topology = self._first["topology"]
        lower = topology["names"][topology["links"]["lower"][number]]
        upper = topology["names"][topology["links"]["upper"][number]]
        upward = 2 * number
        return [
            self._curve(layout, upward, f"{lower} -> {upper}"),
            self._curve(layout, upward + 1, f"{upper} -> {lower}"),
        ]

    def _curve(
        self, layout: PageLayout, directed: int, name: str
    ) -> dict[str, Any]:
        rates = list(self._rates)
        return {
            "name": shown(name),
            "capacity_bps": float(layout.capacity_bps[directed]),
            "t": [second.t for second in rates],
            "reserved_bps": [
                float(second.reserved_bps[directed]) for second in rates
            ],
            "sent_bps": [
                float(second.sent_bps[directed]) for second in rates
            ],
        }

    def _node(self, layout: PageLayout, number: int) -> dict[str, Any]:
        node = layout.nodes[number]
        command = "sudo testbed switch show"
        if node.servers:
            command = "sudo testbed status"
        return {
            "title": shown(node.name),
            "facts": node.facts(),
            "lines": [],
            "text": self._on_node(layout, number),
            "command": command,
        }

    def _on_link(self, number: int) -> str:
        """The tc text of a link of the data centre, of both its ends."""
        first = self._first
        ports = (first["lower_ports"][number], first["upper_ports"][number])
        return plain_text(installed_on(self._texts, (), ports))

    def _on_node(self, layout: PageLayout, number: int) -> str:
        """The flows and the tc text on the switches that are drawn as one."""
        bridges = {
            bridge
            for bridge, node in self._first["bridges"].items()
            if layout.node_of[node] == number
        }
        return plain_text(installed_on(self._texts, bridges, ()))


def _tenant_facts(tenant: dict[str, Any]) -> list[tuple[str, str]]:
    places = [
        f"{server} × {count}" for server, count in tenant["placed"].items()
    ]
    return [
        ("VMs", str(tenant["n_vms"])),
        ("placed", shown(", ".join(places))),
        ("enforcement", tenant["enforcement"]),
        # A tenant that came since the last sample has no rates yet.
        ("packets dropped", str(tenant.get("dropped", 0))),
    ]
