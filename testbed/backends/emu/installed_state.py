"""Limits and flows as ``tc`` and ``ovs-ofctl`` show them, and a plan's.

The testbed installs them by netlink and OpenFlow messages. They are read back
here by other programs, which share no code with those that wrote them; their
output has the same words as the plan's lines.
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
"""Values of limits or flows by name, such as ``hn-r1-u0 class 1:5``."""

PATIENCE_S = 30.0
NO_QUEUE = ("noqueue", "noop")
BEHIND_NETEM = "2:1"
FIELDS = {
    "qdisc": (
        "default",
        "limit",
        "direct_packets_stat",
        "delay",
        "jitter",
        "loss",
    ),
    "class": (
        "parent",
        "rate",
        "ceil",
        "burst",
        "cburst",
        "quantum",
        "mpu",
    ),
    "filter": ("flowid",),
}
UNITS = {
    "": 1, "bit": 1, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12,
    "b": 1, "Kb": 1 << 10, "Mb": 1 << 20,
    "ns": 1e-3, "us": 1, "ms": 10**3, "s": 10**6, "%": 1,
}  # fmt: skip
RATES = ("rate", "ceil")
# tc cuts rates off after four to six digits, and rounds sizes.
RATE_TOLERANCE = 0.001
SIZE_TOLERANCE = 0.01
# tc writes 999.6 us as 1e+03us.
_QUANTITY = re.compile(
    r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)([A-Za-z]*|%)(?:/\d+)?"
)
# iproute2 6.15 prints "burst 15Kb/1mpu 0b", 6.1 "burst 15Kb/1 mpu 0b".
_CELL_AND_MPU = re.compile(r"(/\d+)mpu\b")
_STATISTIC = re.compile(r"(duration|n_packets|n_bytes|idle_age|hard_age)=")


# -- limits


def tc_objects(
    lines: Iterable[str],
    devices: Iterable[str] = (),
    prefix: str = "",
) -> Objects:
    """Limits in lines of a ``tc -batch``, or in the output of ``tc -d -p``.

    The output is of ``devices`` in turn, of each its root first. ``prefix``
    stands before the names of devices.
    """
    limits: Objects = {}
    next_devices = iter(devices)
    device = ""
    previous = ""
    for line in lines:
        # tc shows a filter in two lines, the second with its match.
        text = f"{previous} {line}" if line.startswith(" ") else line
        previous = line
        words = _CELL_AND_MPU.sub(r"\1 mpu", text.replace("*", "")).split()
        after = dict(pairwise(words))
        if "dev" in after:
            device = after["dev"]
        elif words[:1] == ["qdisc"] and "root" in words:
            # tc names no device in what it shows of one.
            device = next(next_devices, "")
        if name := _limit_name(words, after):
            limits[f"{prefix}{device} {name}"] = _limit_values(words, after)
    return limits


def _limit_name(words: Sequence[str], after: Mapping[str, str]) -> str:
    """A limit's name on its device, or empty for lines without a limit."""
    match words[:2]:
        case ["qdisc", kind] if kind not in NO_QUEUE:
            return "root" if "root" in words else f"queue {after['parent']}"
        # netem's own class only leads to the qdisc behind it.
        case ["class", kind] if kind != "netem":
            return f"class {after.get('classid', words[2])}"
        case ["filter", _] if "match" in words:
            at = words.index("match") + 1
            matched = " ".join(words[at : at + 3]).lower()
            return f"filter {after['pref']} {matched}"
    return ""


def _limit_values(
    words: Sequence[str], after: Mapping[str, str]
) -> dict[str, Value]:
    # A plan's lines leave these out; tc shows some of them.
    defaults = {"parent": "1:", "mpu": "0"}
    if words[0] == "qdisc" and "htb" in words:
        defaults = {"direct_packets_stat": "0"}
    texts = {**defaults, **after}
    if "delay" in words:
        # netem's text is "delay 10ms 2ms": the jitter follows without a name.
        texts["jitter"] = "0us"
        at = words.index("delay") + 2
        if words[at : at + 1] and words[at][:1].isdigit():
            texts["jitter"] = words[at]
    values = {}
    for field in FIELDS[words[0]]:
        if field in texts:
            values[field] = _value(texts[field])
    return values


def _value(text: str) -> Value:
    """A rate in bit/s, a size in bytes, a time in us, or a number.

    Any other text is returned unchanged.
    """
    quantity = _QUANTITY.fullmatch(text)
    if quantity is None or quantity[2] not in UNITS:
        return text
    return float(quantity[1]) * UNITS[quantity[2]]


def _inside(netns: str | None) -> tuple[str, ...]:
    """Options of ``ip`` and ``tc`` for a namespace; None: the host's."""
    return ("-netns", netns) if netns else ()


def installed_limits(
    netns: str | None,
    devices: Sequence[str],
    prefix: str = "",
) -> Objects:
    """The limits on devices of a namespace.

    tc stops at a device that is gone: that one and all after it are missing.
    """
    limits = _shown_limits(netns, devices, prefix)
    # By default tc shows the filters of a device's root qdisc, which is netem
    # where the link has a delay: HTB and its filters are behind that.
    behind = [
        device
        for device in devices
        if f"{prefix}{device} queue {BEHIND_NETEM}" in limits
    ]
    if behind:
        limits |= _shown_limits(netns, behind, prefix, " parent 1:")
    return limits


def _shown_limits(
    netns: str | None,
    devices: Sequence[str],
    prefix: str,
    of_filters: str = "",
) -> Objects:
    """Limits in the output of one ``tc``.

    ``of_filters``: words that select the parent of filters.
    """
    requests = ""
    for device in devices:
        for kind in FIELDS:
            place = of_filters if kind == "filter" else ""
            requests += f"{kind} show dev {device}{place}\n"
    command = ("tc", *_inside(netns), "-details", "-pretty", "-batch", "-")
    done = run(command, text_in=requests, timeout_s=PATIENCE_S, check=False)
    return tc_objects(done.stdout.splitlines(), devices, prefix)


def missing_limits(
    lines: Iterable[BatchLine],
    netns: str | None,
    devices: Sequence[str],
) -> tuple[BatchLine, ...]:
    """A plan's lines for these devices whose limits are not installed.

    Of several lines about one limit the last counts.
    """
    wanted: dict[str, BatchLine] = {}
    for line in lines:
        if line.item.dev in devices:
            (name,) = tc_objects([line.text()])
            wanted[name] = BatchLine("add", line.item)
    # tc ends its batch at a device that is gone: the limits of those after it
    # would seem to be missing.
    present = devices_of(netns)
    unqueued = (None, *NO_QUEUE)
    queued = []
    for name in devices:
        if present.get(name, {}).get("qdisc") not in unqueued:
            queued.append(name)
    installed = installed_limits(netns, queued)
    return tuple(
        line for name, line in wanted.items() if name not in installed
    )


def devices_of(netns: str | None) -> dict[str, Any]:
    """A namespace's devices by name, as ``ip`` shows them. Raises RunFailed."""
    command = ("ip", *_inside(netns), "-json", "link", "show")
    shown = run(command, timeout_s=PATIENCE_S).stdout
    return {row["ifname"]: row for row in json.loads(shown)}


# -- flows


def flow_objects(bridge: str, lines: Iterable[str]) -> Objects:
    """Flows of a bridge in lines as ``ovs-ofctl`` reads or shows them.

    They may have counters or not.
    """
    flows: Objects = {}
    for line in lines:
        head, arrow, actions = line.strip().partition(" actions=")
        if not arrow:
            continue
        fields: dict[str, str] = {}
        for part in re.split(r"[,\s]+", head):
            if not _STATISTIC.match(part):
                name, _, value = part.partition("=")
                fields[name] = value
        cookie = fields.pop("cookie", "0x0")
        table = fields.pop("table", "0")
        priority = fields.pop("priority", "0")
        # Fields of a match come in any order: sorted they name the flow.
        match = [f"table={table}", f"priority={priority}"]
        for name, value in sorted(fields.items()):
            match.append(f"{name}={value}" if value else name)
        flow = f"{bridge} flow {','.join(match)}"
        flows[flow] = {"actions": actions, "cookie": cookie}
    return flows


def installed_flows(bridge: str, run_dir: str) -> Objects:
    """The flows that a bridge has. Raises RunFailed."""
    command = (
        "ovs-ofctl",
        "--protocols=OpenFlow13",
        f"--timeout={PATIENCE_S:.0f}",
        "dump-flows",
        f"unix:{run_dir}/{bridge}.mgmt",
    )
    # The command's own limit comes first.
    shown = run(command, timeout_s=PATIENCE_S + 5).stdout
    return flow_objects(bridge, shown.splitlines())


# -- comparison


def differences(
    expected: Objects, installed: Objects
) -> Iterator[tuple[str, str]]:
    """Name and fault of everything that is missing, different or unexpected."""
    for name, values in expected.items():
        if name not in installed:
            yield name, "missing"
            continue
        for field, value in values.items():
            # A class that has classes below it has no turn of its own, and tc
            # shows no quantum.
            default = value if field == "quantum" else "none"
            seen = installed[name].get(field, default)
            if not _same(field, value, seen):
                shown = _text(field, seen)
                yield (
                    name,
                    f"{field} {shown}, expected {_text(field, value)}",
                )
    for name in sorted(installed.keys() - expected.keys()):
        yield name, "not of the plan"


def _same(
    field: str,
    expected: Value,
    installed: Value,
) -> bool:
    if isinstance(expected, str) or isinstance(installed, str):
        return expected == installed
    tolerance = RATE_TOLERANCE if field in RATES else SIZE_TOLERANCE
    return abs(installed - expected) <= tolerance * expected


def _text(field: str, value: Value) -> str:
    if isinstance(value, str):
        return value
    return human_bandwidth(value) if field in RATES else f"{value:.0f}"
