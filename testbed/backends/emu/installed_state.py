"""Limits and flows as ``tc`` and ``ovs-ofctl`` show them, and a plan's lines in the same form.

The testbed writes by netlink and OpenFlow messages. What is installed is read here by other
programs, whose output shares its words with the plan's lines but nothing with what writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from testbed.backends.emu.commands import run
from testbed.plan.batch_lines import BatchLine
from testbed.units import human_bandwidth

Value = float | str
Objects = dict[str, dict[str, Value]]
"""Limits or flows by name, as ``hn-r1-u0 class 1:5``, each with the values that it has."""

PATIENCE_S = 30.0
NO_QUEUE = ("noqueue", "noop")
FIELDS = {
    "qdisc": ("default", "limit", "direct_packets_stat"),
    "class": ("parent", "rate", "ceil", "burst", "cburst", "quantum", "mpu"),
    "filter": ("flowid",),
}
UNITS = {
    "": 1, "bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12,
    "b": 1, "Kb": 1 << 10, "Mb": 1 << 20,
}  # fmt: skip
RATES = ("rate", "ceil")
# tc cuts rates off after four to six digits, and rounds sizes.
RATE_TOLERANCE, SIZE_TOLERANCE = 0.001, 0.01
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-z]*)(?:/\d+)?")
# iproute2 6.15 prints "burst 15Kb/1mpu 0b", 6.1 "burst 15Kb/1 mpu 0b".
_CELL_AND_MPU = re.compile(r"(/\d+)mpu\b")
_STATISTIC = re.compile(r"(duration|n_packets|n_bytes|idle_age|hard_age)=")


# -- limits


def tc_objects(lines: Iterable[str], devices: Iterable[str] = (), prefix: str = "") -> Objects:
    """Limits in lines of a ``tc -batch``, or in what ``tc -d -p`` shows of ``devices`` in turn: of
    each first its root. ``prefix``: what the names of devices begin with.
    """
    found: Objects = {}
    shown, device, before = iter(devices), "", ""
    for line in lines:
        # A filter is shown in two lines, of which the second has its match.
        text = f"{before} {line}" if line.startswith(" ") else line
        words, before = _CELL_AND_MPU.sub(r"\1 mpu", text.replace("*", "")).split(), line
        after = dict(pairwise(words))
        if "dev" in after:
            device = after["dev"]
        elif words[:1] == ["qdisc"] and "root" in words:
            device = next(shown, "")
        if name := _limit_name(words, after):
            given = {"direct_packets_stat": "0"} if name == "root" else {"parent": "1:", "mpu": "0"}
            values = {field: (given | after).get(field) for field in FIELDS[words[0]]}
            known = {field: _value(text) for field, text in values.items() if text is not None}
            found[f"{prefix}{device} {name}"] = known
    return found


def _limit_name(words: Sequence[str], after: Mapping[str, str]) -> str:
    """A limit's name on its device; empty for what limits nothing."""
    match words[:2]:
        case ["qdisc", kind] if kind not in NO_QUEUE:
            return "root" if "root" in words else f"queue {after['parent']}"
        case ["class", _]:
            return f"class {after.get('classid', words[2])}"
        case ["filter", _] if "match" in words:
            at = words.index("match") + 1
            return f"filter {after['pref']} {' '.join(words[at : at + 3]).lower()}"
    return ""


def _value(text: str) -> Value:
    """A rate in bit/s, a size in bytes or a number; anything else as it is."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in UNITS:
        return text
    return float(found[1]) * UNITS[found[2]]


def installed_limits(netns: str | None, devices: Sequence[str], prefix: str = "") -> Objects:
    """The limits on devices of a namespace; those of a device that is gone, and after it, lack."""
    inside = ("-netns", netns) if netns else ()
    kinds = ("qdisc", "class", "filter")
    asked = "".join(f"{kind} show dev {device}\n" for device in devices for kind in kinds)
    command = ("tc", *inside, "-details", "-pretty", "-batch", "-")
    shown = run(command, text_in=asked, timeout_s=PATIENCE_S, check=False).stdout
    return tc_objects(shown.splitlines(), devices, prefix)


def missing_limits(
    lines: Iterable[BatchLine], netns: str | None, devices: Sequence[str]
) -> tuple[BatchLine, ...]:
    """Of the lines of a plan that are about these devices, those whose limits are not there; a
    line that changes another stands for both.
    """
    wanted: dict[str, BatchLine] = {}
    for line in lines:
        if line.item.dev in devices:
            (name,) = tc_objects([line.text()])
            wanted[name] = BatchLine("add", line.item)
    there = devices_of(netns)
    queued = [name for name in devices if there.get(name, {}).get("qdisc") not in (None, *NO_QUEUE)]
    found = installed_limits(netns, queued)
    return tuple(line for name, line in wanted.items() if name not in found)


def devices_of(netns: str | None) -> dict[str, Any]:
    """A namespace's devices by name, as ``ip`` shows them. Raises RunFailed."""
    inside = ("-netns", netns) if netns else ()
    shown = run(("ip", *inside, "-json", "link", "show"), timeout_s=PATIENCE_S).stdout
    return {row["ifname"]: row for row in json.loads(shown)}


# -- flows


def flow_objects(bridge: str, lines: Iterable[str]) -> Objects:
    """Flows of a bridge in lines as ``ovs-ofctl`` reads or shows them, with or without counters."""
    found: Objects = {}
    for line in lines:
        head, arrow, actions = line.strip().partition(" actions=")
        parts = [part for part in re.split(r"[,\s]+", head) if not _STATISTIC.match(part)]
        named = {"table": "0"} | dict(part.partition("=")[::2] for part in parts)
        values: dict[str, Value] = {"actions": actions, "cookie": named.pop("cookie", "0x0")}
        first = {field: named.pop(field, "0") for field in ("table", "priority")}
        match = [k + (f"={v}" if v else "") for k, v in (*first.items(), *sorted(named.items()))]
        if arrow:
            found[f"{bridge} flow {','.join(match)}"] = values
    return found


def installed_flows(bridge: str, run_dir: str) -> Objects:
    """The flows that a bridge has. Raises RunFailed."""
    command = ("ovs-ofctl", "--protocols=OpenFlow13", f"--timeout={PATIENCE_S:.0f}", "dump-flows")
    shown = run((*command, f"unix:{run_dir}/{bridge}.mgmt"), timeout_s=PATIENCE_S + 5).stdout
    return flow_objects(bridge, shown.splitlines())


# -- comparison


def differences(expected: Objects, found: Objects) -> Iterator[tuple[str, str]]:
    """Name and fault of everything that is not as expected, or not expected at all."""
    for name, values in expected.items():
        if name not in found:
            yield name, "missing"
            continue
        for field, value in values.items():
            # tc shows no turn of a class that has classes below it.
            seen = found[name].get(field, value if field == "quantum" else "none")
            if not _same(field, value, seen):
                yield name, f"{field} {_text(field, seen)}, expected {_text(field, value)}"
    for name in sorted(found.keys() - expected.keys()):
        yield name, "not of the plan"


def _same(field: str, expected: Value, found: Value) -> bool:
    if isinstance(expected, str) or isinstance(found, str):
        return expected == found
    tolerance = RATE_TOLERANCE if field in RATES else SIZE_TOLERANCE
    return abs(found - expected) <= tolerance * expected


def _text(field: str, value: Value) -> str:
    if isinstance(value, str):
        return value
    return human_bandwidth(value) if field in RATES else f"{value:.0f}"
