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
from testbed.web.followed_run import ItemKind, Status
from testbed.web.gauges import Gauge, network_gauges
from testbed.web.page_layout import PageLayout, page_layout
from testbed.web.run_state import shown

KEPT_SAMPLES = 900
"""Seconds of history of each link."""
KEPT_TOTALS = 3_600
ENDED = "the network is no longer up"


@dataclass(frozen=True)
class LinkRates:
    """Rates of all directed links in a second, in bit/s of the experiment."""

    t: float
    reserved_bps: NDArray[np.float32]
    sent_bps: NDArray[np.float32]


class FollowedNetwork:
    """A standing network up to the last line of its feed.

    Seconds count from the first sample on. ``trouble``: why nothing follows;
    empty.
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
        self._waiting: deque[str] = deque()
        self._reader = threading.Thread(
            target=self._read, args=(lines,), daemon=True
        )
        self._reader.start()

    def _read(self, lines: Iterable[str]) -> None:
        """The reading thread: a pipe holds less than a large network's sample."""
        for line in lines:
            self._waiting.append(line)
        self._waiting.append(json.dumps({"end": ENDED}))

    def wait(self) -> None:
        """Waits until the feed has ended."""
        self._reader.join()

    def refresh(self) -> bool:
        """Takes in the lines since the last call; False where there were none."""
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
            self._now_s += line["interval_s"]
            self.last = line
            rates = LinkRates(
                self._now_s,
                np.array(line["reserved_bps"], np.float32),
                np.array(line["sent_bps"], np.float32),
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
        """Sizes that the page draws over time."""
        reserved_bps = sum(line["reserved_bps"])
        sent_bps = sum(line["sent_bps"])
        capacity_bps = 1.0
        if self.layout is not None:
            total_bps = float(self.layout.capacity_bps.sum())
            capacity_bps = max(capacity_bps, total_bps)
        return {
            "t": self._now_s,
            "running": len(line["tenants"]),
            "waiting": 0,
            "slots_used": line["slots_taken"],
            "reserved_share": reserved_bps / capacity_bps,
            "sent_share": sent_bps / capacity_bps,
        }

    def frame(self) -> dict[str, Any]:
        """All that changes on the page, as one JSON value."""
        layout = self.layout
        frame: dict[str, Any] = {"kind": "frame", "mode": "live"}
        if layout is None or not self.last:
            return frame
        last = self.last
        down = set()
        for number in last.get("down", ()):
            down.add(layout.link_of[number])
        return frame | {
            "at_s": self._now_s,
            "totals": self._totals[-1],
            "ended": {},
            "jobs": [],
            "more_jobs": 0,
            "recent": [],
            "rejections": [],
            "log": self._troubles(),
            "fidelity": {"verdict": None, "notes": []},
            "controller": self._parts(),
            "tenants": last["tenants"],
            "reserved": layout.use(np.array(last["reserved_bps"], float)),
            "sent": layout.use(np.array(last["sent_bps"], float)),
            "placed": self._placed(layout),
            "down": {"links": sorted(down), "nodes": []},
        }

    def _troubles(self) -> list[tuple[float, str]]:
        whole = self.last["trouble"]
        troubles = [whole]
        for tenant in self.last["tenants"]:
            if tenant["trouble"] not in whole:
                troubles.append(tenant["trouble"])
        return [(self._now_s, shown(text)) for text in troubles if text]

    def _parts(self) -> str:
        """The controller and the switches in a sentence."""
        switches = self.last.get("switches", ())
        dead = []
        for switch in switches:
            if not switch["forwards"]:
                dead.append(switch["name"])
        who = self.last["controller"] or "the testbed's controller"
        if dead:
            return f"{who}; ended: {', '.join(dead)}"
        return f"{who}; {len(switches)} Open vSwitch"

    def _placed(self, layout: PageLayout) -> dict[int, list[list[Any]]]:
        """VMs in their slots: drawn node -> tenant and number of VMs."""
        names = self._first["topology"]["names"]
        number_of = {name: number for number, name in enumerate(names)}
        placed: dict[int, dict[str, int]] = {}
        for tenant in self.last["tenants"]:
            for server, count in tenant["placed"].items():
                node = layout.node_of[number_of[server]]
                here = placed.setdefault(node, {})
                here[tenant["name"]] = here.get(tenant["name"], 0) + count
        return {
            node: [[name, count] for name, count in tenants.items()]
            for node, tenants in placed.items()
        }

    def item(self, kind: ItemKind, name: str) -> dict[str, Any]:
        """A tenant, a drawn link or a drawn node. Raises BadInput where there is
        none of that name.
        """
        if kind == "job":
            return self._tenant(name)
        layout = self.layout
        number = int(name) if name.isdecimal() else -1
        if layout is None:
            raise BadInput("the network's layout is not there yet")
        if kind == "link" and 0 <= number < len(layout.links):
            return self._link(layout, number)
        if kind == "node" and 0 <= number < len(layout.nodes):
            return self._node(layout, number)
        raise BadInput(f"there is no {kind} {shown(name)}")

    def _tenant(self, name: str) -> dict[str, Any]:
        for tenant in self.last.get("tenants", ()):
            if tenant["name"] == name:
                break
        else:
            raise BadInput(f"there is no tenant {shown(name)}")
        places = []
        for server, count in tenant["placed"].items():
            places.append(f"{server} × {count}")
        return {
            "title": f"tenant {shown(name)}",
            "facts": [
                ("VMs", str(tenant["n_vms"])),
                ("placed", shown(", ".join(places))),
                ("enforcement", tenant["enforcement"]),
                ("packets dropped", str(tenant.get("dropped", 0))),
            ],
            "lines": [],
            "text": plain_text(self._texts.get(name, "")),
            "command": f"sudo testbed tenant show {shlex.quote(name)}",
        }

    def _link(self, layout: PageLayout, number: int) -> dict[str, Any]:
        link = layout.links[number]
        names = self._first["topology"]["names"]
        ends = self._first["topology"]["links"]
        lower = names[ends["lower"][link.number]]
        upper = names[ends["upper"][link.number]]
        upward = 2 * link.number
        curves = []
        for directed, name in (
            (upward, f"{lower} -> {upper}"),
            (upward + 1, f"{upper} -> {lower}"),
        ):
            capacity_bps = float(layout.capacity_bps[directed])
            curves.append(
                {"name": shown(name), "capacity_bps": capacity_bps}
                | self._curve(directed)
            )
        queued = self.last.get("queued_bytes", ())
        dropped = self.last.get("dropped", ())
        return {
            "title": f"link {shown(link.name)}",
            "facts": [
                ("queued", f"{sum(queued[upward : upward + 2])} bytes"),
                ("dropped", f"{sum(dropped[upward : upward + 2])} packets"),
            ],
            "lines": [],
            "curves": curves,
            "command": "sudo testbed top",
        }

    def _curve(self, directed: int) -> dict[str, list[float]]:
        times = []
        reserved = []
        sent = []
        for rates in self._rates:
            times.append(rates.t)
            reserved.append(float(rates.reserved_bps[directed]))
            sent.append(float(rates.sent_bps[directed]))
        return {"t": times, "reserved_bps": reserved, "sent_bps": sent}

    def _node(self, layout: PageLayout, number: int) -> dict[str, Any]:
        node = layout.nodes[number]
        command = "sudo testbed switch show"
        if node.servers:
            command = "sudo testbed status"
        return {
            "title": shown(node.name),
            "facts": [
                ("servers", f"{node.servers}"),
                ("VM slots", f"{node.slots}"),
            ],
            "lines": [],
            "command": command,
        }
