"""Hostile inputs for a real controller process on loopback (``python -m tests.support.fuzz``).

An input is a connection: bytes to send, then its end. The controller has to end it, too, and soon;
what the API replies has to be HTTP with JSON. Now and then a client with the token asks for the
state, and a switch sends an echo request: both have to be answered all the time.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import struct
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller import openflow13
from controller.process import ControllerProcess, start_controller
from controller.values import NetworkSwitches, to_json
from tests.support.fake_datacentre import tree_datacentre
from tests.support.fuzz.mutations import flipped, mutated
from tests.support.fuzz.workers import Progress, randomness, replay
from tests.support.watching_client import WatchingClient

END_TIMEOUT_S = 60.0
"""Six times the controller's own, for a whole request or handshake: it may have
to wait for a processor.
"""
NO_END = f"no end within {END_TIMEOUT_S:g} s"
PROBE_EVERY = 50
PROBE_TIMEOUT_S = 60.0
DATACENTRE = tree_datacentre([2, 2], slots_per_server=2)
PROBE_DPID = 0xF00D
"""Of the switch that sends echo requests; no input claims to be it."""


@dataclass(frozen=True)
class FuzzResult:
    """Outcome of a fuzz run. ``peak`` and ``resident`` are bytes; ``failures`` name the input."""

    kind: str
    seed: int
    inputs: int
    duration_s: float
    tracebacks: int
    failures: tuple[str, ...]
    replies: dict[str, int]
    resident_before: int
    resident_after: int
    peak: int
    threads_before: int
    threads_after: int
    log_size_bytes: int

    @property
    def sound(self) -> bool:
        """True if nothing failed, hung or was logged with a traceback."""
        return not self.failures and not self.tracebacks

    def text(self) -> str:
        """The result in a few lines."""
        replies = ", ".join(
            f"{name}: {count}"
            for name, count in sorted(self.replies.items())
        )
        rate = self.inputs / self.duration_s
        hangs = sum(NO_END in failure for failure in self.failures)
        sizes = [
            self.resident_before >> 20,
            self.resident_after >> 20,
            self.peak >> 20,
        ]
        lines = [
            f"{self.kind}, seed {self.seed}: {self.inputs} inputs in {self.duration_s:.1f} s",
            f"  {rate:.0f} inputs/s",
            f"  tracebacks {self.tracebacks}, hangs {hangs}, failures {len(self.failures)}",
            "  memory {} MiB before, {} MiB after, {} MiB at its peak".format(
                *sizes
            ),
            f"  threads {self.threads_before} before, {self.threads_after} after",
            f"  log {self.log_size_bytes} bytes",
            f"  replies {replies}",
        ]
        return "\n".join(
            [
                *lines,
                *(f"  FAILED {failure}" for failure in self.failures[:20]),
            ]
        )


# ------------------------------------------------------------------------------- the API's inputs


def _body(rng: random.Random, path: str) -> bytes:
    if path == "/v1/wait":
        # Nothing that would be waited for.
        limit: Any = rng.choice(
            (0, 0.001, -1, 301, "0", None, [], 10**4000)
        )
        return json.dumps(
            {"dpids": mutated(rng, [1, 2]), "timeout_s": limit}
        ).encode()
    tenant = DATACENTRE.tenant(
        rng.randint(1, 5), DATACENTRE.slots[:4], lambda _count: 0
    )
    values = (
        to_json(NetworkSwitches(DATACENTRE.switches)),
        to_json(tenant),
    )
    text = values[
        path.startswith("/v1/tenants")
        if rng.random() < 0.9
        else rng.randrange(2)
    ]
    act = rng.random()
    if act < 0.2:
        return text
    if act < 0.7:
        value = json.loads(text)
        for _ in range(rng.choice((1, 1, 2, 5))):
            value = mutated(rng, value)
        return json.dumps(value).encode()
    if act < 0.85:
        return flipped(rng, text)
    deep = rng.choice((50, 500, 5000))
    return rng.choice(
        (
            b"[" * deep,
            b'{"switches":' * deep,
            b'{"switches":[' + b'{"dpid":1},' * deep * 4 + b"{}]}",
            b'{"switches":[' + b"{}," * deep * 4 + b"{}]}",
            b"9" * deep,
            b'{"dpid":1,"dpid":2' + b',"dpid":3' * deep + b"}",
            b"\xef\xbb\xbf" + text,
            text.decode().encode("utf-16"),
            b"\xff" * deep,
        )
    )


_TARGETS = (
    "http://[",
    "//",
    "/v1/../v1/state",
    "*",
    "/%",
    "/v1/tenants/999999999",
    "\x1b[31m",
    "?",
)
_QUERIES = (
    "timeout_s=0",
    "timeout_s=",
    "timeout_s=0&timeout_s=1",
    "x",
    "timeout_s=1e999",
    "&" * 50 + "x",
)
_AT_ONCE = b"timeout_s=0 HTTP/1.1"
_WAIT = b"POST /v1/wait"
_HEADERS = (
    *(
        "Content-Length: -1",
        "Content-Length: 0x10",
        "Content-Length: 99999999999999999999",
    ),
    *(
        "Transfer-Encoding: chunked",
        "Expect: 100-continue",
        "Connection: keep-alive",
        "A" * 9000,
    ),
    *(
        "Content-Length: 5\r\nContent-Length: 6",
        ": x",
        "X\x00: \x00",
        "X: " + "y" * 60_000,
        " folded",
    ),
    *(
        "Authorization: Bearer",
        "Authorization: Bearer ä",
        "Upgrade: h2c",
        "Host: [",
        "X: 1\r\n" * 120,
    ),
)


def _api_input(rng: random.Random, token: str) -> bytes:
    """Requests, one mostly, as they are, odd or broken."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.choice((1, 10, 1000, 70_000)))
    parts = [
        _request(rng, token) for _ in range(rng.choice((1, 1, 1, 1, 2, 5)))
    ]
    data = b"".join(parts)
    act = rng.random()
    if act < 0.1:
        return data[: rng.randrange(len(data) + 1)]
    if act < 0.2:
        changed = flipped(rng, data)
        # A request that has lost its limit may wait for switches, rightly, for half a minute;
        # that of a wait is in its body, which may be lost in many ways.
        kept = _WAIT not in data and changed.count(_AT_ONCE) == data.count(
            _AT_ONCE
        )
        return changed if kept else data
    return data


def _request(rng: random.Random, token: str) -> bytes:
    verb, path = rng.choice(
        (
            *(
                ("GET", "/v1/health"),
                ("GET", "/v1/state"),
                ("GET", "/v1/flows"),
                ("GET", "/nowhere"),
            ),
            *(("PUT", "/v1/network"),) * 4,
            *(("POST", "/v1/tenants"),) * 4,
            *(("POST", "/v1/wait"), ("PUT", "/v1/tenants/3")) * 2,
            *(
                ("POST", "/v1/reconcile"),
                ("GET", "/v1/tenants/3"),
                ("DELETE", "/v1/tenants/3"),
            ),
        )
    )
    body = (
        _body(rng, path)
        if verb in ("PUT", "POST") or rng.random() < 0.05
        else b""
    )
    if rng.random() < 0.05:
        verb = rng.choice(
            ("HEAD", "TRACE", "PATCH", "BREW", "get", "X" * 3000, "'\"")
        )
    query = rng.choice(_QUERIES) if rng.random() < 0.1 else "timeout_s=0"
    target = (
        rng.choice(_TARGETS) if rng.random() < 0.05 else f"{path}?{query}"
    )
    lines = [
        f"{verb} {target} HTTP/1.1",
        "Host: x",
        f"Content-Length: {len(body)}",
    ]
    if rng.random() < 0.95:
        lines.append(f"Authorization: Bearer {token}")
    if rng.random() < 0.1:
        lines.insert(rng.randint(1, len(lines)), rng.choice(_HEADERS))
    if rng.random() < 0.02:
        lines[0] = f"{verb} {target}" + rng.choice(
            ("", " HTTP/2.0", " HTTP/1.0", " HTTP/9", " a b c")
        )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


_STATUS = re.compile(rb"HTTP/1\.1 ([0-9]{3}) [^\r\n]*\r\n")
_LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]+)\r\n")


def _judge_api(reply: bytes, replies: Counter[str]) -> str | None:
    """Why the reply is no row of HTTP replies with JSON in them, None if it is one."""
    if not reply:
        replies["none"] += 1
    while reply:
        status, length = _STATUS.match(reply), _LENGTH.search(reply)
        if status is None:
            return f"no status line: {reply[:80]!r}"
        head, _, rest = reply.partition(b"\r\n\r\n")
        code = status[1].decode()
        replies[code] += 1
        if code == "500":
            return f"500: {rest[:80]!r}"
        # Neither "100 Continue" nor an answer to HEAD has a body.
        bare = not rest or rest.startswith(b"HTTP/1.1 ")
        size = (
            int(length[1])
            if length and length.start() < len(head) and not bare
            else 0
        )
        body, reply = rest[:size], rest[size:]
        try:
            json.loads(body or b"{}")
        except ValueError:
            return f"{code}, not JSON: {body[:80]!r}"
    return None


# ----------------------------------------------------------------------------- OpenFlow's inputs


OFPMP_PORT_DESC = 13
_FEATURES = struct.Struct("!QIBB2xII")
HELLO = openflow13.message(openflow13.OFPT_HELLO, 1)


def features(dpid: int) -> bytes:
    """The features reply of a switch."""
    body = _FEATURES.pack(dpid, 0, 254, 0, 0, 0)
    return openflow13.message(openflow13.OFPT_FEATURES_REPLY, 2, body)


def _openflow_message(rng: random.Random, kind: int, body: bytes) -> bytes:
    """A message, sometimes with another version, length or number than it ought to have."""
    data = bytearray(
        openflow13.message(kind, rng.getrandbits(32), body[:65_000])
    )
    if rng.random() < 0.1:
        data[0] = rng.choice((0, 1, 2, 3, 5, 6, 7, 0x84, 255))
    if rng.random() < 0.1:
        data[2:4] = rng.choice(
            (0, 1, 7, 8, 9, 0xFFFF, len(data) - 1)
        ).to_bytes(2, "big")
    return bytes(data)


def _hello(rng: random.Random) -> bytes:
    act = rng.random()
    if act < 0.6:
        return HELLO
    elements = b"".join(
        struct.pack(
            "!HH",
            rng.choice((0, 1, 1, 2)),
            rng.choice((0, 3, 4, 8, 8, 12, 60_000)),
        )
        + rng.choice(
            (b"\0\0\0\x10", b"\0\0\0\x02", b"\xff" * 4, b"", b"\xff" * 2000)
        )
        for _ in range(rng.choice((1, 2, 40)))
    )
    return _openflow_message(rng, openflow13.OFPT_HELLO, elements)


def _multipart(rng: random.Random) -> bytes:
    kind = rng.choice(
        (*(openflow13.OFPMP_FLOW, OFPMP_PORT_DESC) * 3, *range(15), 0xFFFF)
    )
    sizes = (0, 1, 2, 8, 48, 56, 64, 65_000)
    head = openflow13.MULTIPART.pack(kind, rng.choice((0, 1, 1)))
    if kind == openflow13.OFPMP_FLOW:
        entries = b"".join(
            _flow_entry(rng) for _ in range(rng.choice((1, 3, 50)))
        )
        return head + (
            entries if rng.random() < 0.7 else flipped(rng, entries)
        )
    return head + rng.choice((bytes, rng.randbytes))(rng.choice(sizes))


def _flow_entry(rng: random.Random) -> bytes:
    fields = b"".join(
        struct.pack(
            "!HBB", rng.choice((0x8000, 0x8000, 1)), rng.randrange(80), size
        )
        + rng.randbytes(size)
        for size in rng.choices((0, 1, 2, 4, 6, 8, 255), k=rng.randrange(4))
    )
    match = (
        struct.pack("!HH", 1, 4 + len(fields))
        + fields
        + bytes(-(4 + len(fields)) % 8)
    )
    tail = match + rng.choice(
        (b"", bytes(8), struct.pack("!HHB3x", 1, 8, 1), rng.randbytes(24))
    )
    length = openflow13.FLOW_STATS.size + len(tail)
    if rng.random() < 0.1:
        length = rng.choice((0, 1, 55, 56, 0xFFFF))
    cookie = rng.choice(
        (0x484F5345_00000000, 0x484F5345_00000003, rng.getrandbits(64))
    )
    return (
        openflow13.FLOW_STATS.pack(
            length, 0, 0, 0, 100, 0, 0, 0, cookie, 0, 0
        )
        + tail
    )


def _openflow_input(rng: random.Random, token: str) -> bytes:
    """Garbage, or a switch that is true for some time."""
    del token
    if rng.random() < 0.1:
        garbage = (
            rng.randbytes(rng.choice((1, 7, 8, 300, 9000))),
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(99),
        )
        return rng.choice(garbage)
    dpid = rng.choice((0, 1, 2, 3, 99, 2**64 - 1, rng.randint(10, 10_000)))
    parts = [_hello(rng)]
    if rng.random() < 0.9:
        body = features(dpid)[8 : rng.choice((32, 32, 32, 32, 15, 8))]
        parts.append(
            _openflow_message(rng, openflow13.OFPT_FEATURES_REPLY, body)
        )
    if rng.random() < 0.9:
        ports = openflow13.MULTIPART.pack(
            OFPMP_PORT_DESC, rng.choice((0, 0, 0, 1))
        )
        parts.append(
            openflow13.message(openflow13.OFPT_MULTIPART_REPLY, 2, ports)
        )
    for _ in range(rng.choice((0, 1, 3, 20))):
        kind = rng.choice(
            (0, 1, 2, 3, 19, 19, 19, 19, 21, rng.randrange(256))
        )
        sizes = (0, 1, 3, 4, 8, 12, 100, 60_000)
        body = (
            _multipart(rng)
            if kind == 19
            else rng.randbytes(rng.choice(sizes))
        )
        parts.append(_openflow_message(rng, kind, body))
    data = b"".join(parts)
    act = rng.random()
    if act < 0.1:
        return data[: rng.randrange(len(data) + 1)]
    return flipped(rng, data) if act < 0.2 else data


def _judge_openflow(reply: bytes, replies: Counter[str]) -> str | None:
    """Why the reply is no row of OpenFlow messages, None if it is one."""
    kinds = []
    while len(reply) >= openflow13.HEADER.size:
        _, kind, length, _ = openflow13.HEADER.unpack_from(reply)
        if length < openflow13.HEADER.size:
            return f"a message of {length} bytes"
        kinds.append(kind)
        reply = reply[length:]
    far = (
        "connected"
        if openflow13.OFPT_FEATURES_REQUEST in kinds
        else "refused"
    )
    replies[
        "asked for rules"
        if openflow13.OFPT_MULTIPART_REQUEST in kinds
        else far
    ] += 1
    return None


# ---------------------------------------------------------------------------------- the process


_KINDS = {
    "api": (_api_input, _judge_api),
    "openflow": (_openflow_input, _judge_openflow),
}


def input_of(kind: str, seed: int, number: int, token: str) -> bytes:
    """The bytes of one input. Nothing but its arguments decides them."""
    return _KINDS[kind][0](randomness(kind, seed, number), token)


def _status(pid: int, name: str) -> int:
    """A number of /proc/PID/status; memory in bytes."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (
        line for line in text.splitlines() if line.startswith(f"{name}:")
    )
    return int(line.split()[1]) * (1024 if line.endswith("kB") else 1)


@dataclass
class _Probe:
    """A client with the token, and a switch: both are there all the time."""

    controller: ControllerProcess
    client: WatchingClient = field(init=False)
    switch: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.client = WatchingClient.of(self.controller)
        self.client.put_network(DATACENTRE.switches)
        self.switch = connected(self.controller.openflow_port, PROBE_DPID)

    def check(self) -> str | None:
        """Why one of them is not answered, None if both are."""
        try:
            self.client.state()
            echo(self.switch)
        except Exception as error:  # noqa: BLE001 - that is the finding
            return f"not answered: {error!r}"
        return None

    def close(self) -> None:
        self.client.close()
        self.switch.close()


def connected(
    port: int, dpid: int, timeout_s: float | None = None
) -> socket.socket:
    """A switch that has done its handshake, and waits for PROBE_TIMEOUT_S."""
    switch = socket.create_connection(
        ("127.0.0.1", port), timeout=timeout_s or PROBE_TIMEOUT_S
    )
    ports = openflow13.MULTIPART.pack(OFPMP_PORT_DESC, 0)
    switch.sendall(HELLO + features(dpid))
    switch.sendall(
        openflow13.message(openflow13.OFPT_MULTIPART_REPLY, 3, ports)
    )
    return switch


def echo(switch: socket.socket) -> None:
    """An echo request, and what comes up to its reply. Raises OSError if it does not come."""
    mark = random.randbytes(16)
    switch.sendall(
        openflow13.message(openflow13.OFPT_ECHO_REQUEST, 7, mark)
    )
    heard = b""
    while mark not in heard:
        part = switch.recv(65536)
        if not part:
            raise ConnectionError("the controller has hung up")
        # Not the last part alone: the mark may lie across two.
        heard = heard[-32:] + part


def _exchange(port: int, data: bytes) -> bytes:
    """Send an input and its end; all that comes back. TimeoutError if there is no end to it."""
    until_s = time.monotonic() + END_TIMEOUT_S
    reply = bytearray()
    with socket.create_connection(
        ("127.0.0.1", port), timeout=END_TIMEOUT_S
    ) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except TimeoutError:
            raise
        except OSError:
            # It may hang up before it has taken all: no more can be sent.
            pass
        # A socket that is closed before all that came was read sends a
        # reset: that is an end as well.
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 16):
                reply += part
                if time.monotonic() > until_s:
                    raise TimeoutError
    return bytes(reply)


def _refused_for_its_rate(reply: bytes) -> bool:
    return b" 429 " in reply[:20]


def fuzz(
    kind: str,
    numbers: range,
    seed: int,
    library: str = "auto",
    progress: Progress | None = None,
) -> FuzzResult:
    """Send the inputs of a kind, "api" or "openflow", to a controller that is started for it."""
    with tempfile.TemporaryFile() as log:
        options = (
            "--openflow-port",
            "0",
            "--api-port",
            "0",
            "--library",
            library,
        )
        with start_controller(log, *options) as controller:
            probe = _Probe(controller)
            with contextlib.closing(probe):
                return _fuzz_one(kind, numbers, seed, probe, log, progress)


def _fuzz_one(
    kind: str,
    numbers: range,
    seed: int,
    probe: _Probe,
    log: Any,
    progress: Progress | None,
) -> FuzzResult:
    controller, pid = probe.controller, probe.controller.process.pid
    port = (
        controller.api_port if kind == "api" else controller.openflow_port
    )
    replies: Counter[str] = Counter()
    failures: list[str] = []
    before = _status(pid, "VmRSS"), _status(pid, "Threads")
    start_s = time.monotonic()
    for done, number in enumerate(numbers, 1):
        why = _one(
            kind,
            port,
            input_of(kind, seed, number, controller.token),
            replies,
        )
        if done % PROBE_EVERY == 0 or done == len(numbers):
            why = why or probe.check()
        if why:
            failures.append(
                f"input {number}: {why}\n    {replay(kind, seed, number)}"
            )
        if controller.process.poll() is not None or len(failures) > 100:
            failures.append(f"given up after {done} inputs")
            break
        if progress:
            progress(done, time.monotonic() - start_s)
    duration_s = time.monotonic() - start_s
    alive = controller.process.poll() is None
    log.seek(0)
    text = log.read()
    return FuzzResult(
        kind=kind,
        seed=seed,
        inputs=done,
        duration_s=duration_s,
        tracebacks=text.count(b"Traceback (most recent call last)"),
        failures=tuple(failures),
        replies=dict(replies),
        resident_before=before[0],
        resident_after=_status(pid, "VmRSS") if alive else 0,
        peak=_status(pid, "VmHWM") if alive else 0,
        threads_before=before[1],
        threads_after=_status(pid, "Threads") if alive else 0,
        log_size_bytes=len(text),
    )


def _one(
    kind: str, port: int, data: bytes, replies: Counter[str]
) -> str | None:
    try:
        reply = _exchange(port, data)
        for _ in range(20):
            # The token's owner is let in 500 times a second; what is refused has tried nothing.
            if (
                kind != "api"
                or b"Bearer" not in data
                or not _refused_for_its_rate(reply)
            ):
                break
            time.sleep(0.02)
            reply = _exchange(port, data)
    except TimeoutError:
        return NO_END
    except OSError as error:
        return repr(error)
    return _KINDS[kind][1](reply, replies)
