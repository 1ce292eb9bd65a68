"""Measures the tenants' flows on the network that is up, with iperf3 in their VMs.

    sudo python3 measure.py 1 3 8            b with one, three, eight flows against a's one
    sudo python3 measure.py 1 3 8 --free     with windows as TCP finds them

Flows: a.0 to a.1, b.0 to b.3 (as many connections as you say), b.1 to b.2. Those between racks have
windows of at most WINDOW, so that their shares settle within a second. Rates are of frames on the
wire, in Mbit/s. The results are written to measured.json, for draw.py.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

TESTBED = ["testbed"]
RESULTS = Path("measured.json")
FLOWS = {"a": [("a.0", "a.1")], "b": [("b.0", "b.3"), ("b.1", "b.2")]}
MANY, WITHIN_RACK = ("b.0", "b.3"), ("b.1", "b.2")
WINDOW = "16K"
BEFORE_S, COUNTED_S = 1.0, 2.0  # from when every connection sends
UNTIL_ALL_SEND_S = 30.0
SENDING_BYTES = 10_000  # iperf3's own connection, which controls the others, carries less
PAYLOAD_BYTES, FRAME_BYTES = 1448, 1514  # of a full TCP segment
PORT = "5201"
COUNT = f"""while read line
do date +%s.%N; ss -Htin state established sport = :{PORT}; echo end
done"""


def measure(connections, *, free=False):
    """Mbit/s that arrive of each flow, {"a.0-a.1": 10.0, …}, while all of them send."""
    flows = [flow for tenant in FLOWS.values() for flow in tenant]
    programs = []
    try:
        serve = ("iperf3", "-s", "--forceflush", "-p", PORT)
        servers = [_start(receiver, *serve) for _, receiver in flows]
        counters = [_start(receiver, "sh", "-c", COUNT) for _, receiver in flows]
        programs += servers + counters
        for server in servers:
            _until_listening(server)
        for sender, receiver in flows:
            number = connections if (sender, receiver) == MANY else 1
            to = ["-c", receiver, "-p", PORT, "-t", "60", "-P", str(number)]
            within_rack = (sender, receiver) == WITHIN_RACK
            windows = [] if free or within_rack else ["-w", WINDOW]
            programs.append(_start(sender, "iperf3", *to, *windows))
        _until_all_send(counters, sum(connections if flow == MANY else 1 for flow in flows))
        time.sleep(BEFORE_S)
        before = _received(counters)
        time.sleep(COUNTED_S)
        after = _received(counters)
    finally:
        for program in reversed(programs):
            program.terminate()
            program.communicate()
    return {
        f"{sender}-{receiver}": 8e-6 * (sum(y[1]) - sum(x[1])) / (y[0] - x[0])
        for (sender, receiver), x, y in zip(flows, before, after, strict=True)
    }


def by_tenant(rates):
    """Mbit/s of each tenant, of what `measure` returned."""
    return {
        tenant: sum(rates[f"{sender}-{receiver}"] for sender, receiver in flows)
        for tenant, flows in FLOWS.items()
    }


def _start(vm, *command):
    return subprocess.Popen(
        [*TESTBED, "exec", vm, "--", *command],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def _until_listening(server):
    printed = ""
    for line in server.stdout:
        printed += line
        if "listening" in line:
            return
    sys.exit(f"iperf3 does not listen: {printed.strip()}")


def _until_all_send(counters, connections):
    """Programs start at their own time, later on a busy machine."""
    until = time.monotonic() + UNTIL_ALL_SEND_S
    while True:
        sending = sum(size >= SENDING_BYTES for _, sizes in _received(counters) for size in sizes)
        if sending == connections:
            return
        if time.monotonic() > until:
            waited = f"after {UNTIL_ALL_SEND_S:.0f} s"
            sys.exit(f"{sending} of {connections} connections send {waited}: testbed doctor")
        time.sleep(0.1)


def _received(counters):
    """Time, and bytes of frames that have arrived of each connection, by the receivers' kernels."""
    for counter in counters:
        print(file=counter.stdin, flush=True)
    found = []
    for counter in counters:
        text = ""
        while not text.endswith("end\n"):
            line = counter.stdout.readline()
            if not line:
                sys.exit(f"nothing counts in a VM: {text.strip()}")
            text += line
        payloads = map(int, re.findall(r"bytes_received:(\d+)", text))
        sizes = [payload * FRAME_BYTES / PAYLOAD_BYTES for payload in payloads]
        found.append((float(text.split()[0]), sizes))
    return found


def main(words):
    free = "--free" in words
    words = [word for word in words if word != "--free"]
    if not words or not all(word.isdecimal() and 1 <= int(word) <= 16 for word in words):
        sys.exit(__doc__)
    results = []
    for connections in map(int, words):
        rates = by_tenant(measure(connections, free=free))
        results.append({"flows": connections, "rates": rates})
        of_each = ", ".join(f"{tenant} {rate:.1f} Mbit/s" for tenant, rate in rates.items())
        print(f"b with {connections} flows: {of_each}", flush=True)
    RESULTS.write_text(json.dumps(results), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
