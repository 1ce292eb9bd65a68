"""`testbed capture` on a network that stays up, and beside a run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.emu.test_programs import sleepers
from tests.emu.test_run import REPOSITORY, Testbed, testbed  # noqa: F401 - a fixture
from tests.emu.test_up import RATE, Standing, standing  # noqa: F401 - a fixture
from tests.support.agent_watch import wait_until

PAGE = REPOSITORY / "docs" / "standing-network.md"
# A ring of four VMs, and two whose program lasts until it is ended.
TWO = """
name: two
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
scale: {rate: 0.02}
policies: [scripted]
workload:
  kind: jobs
  jobs:
    - {id: ring, vms: 4, bandwidth: 250 Mbit/s, duration: 300 s, pattern: ring}
    - {id: sleeping, vms: 2, bandwidth: 10 Mbit/s, duration: 300 s, command: [sleep, "MARK"]}
expect: {fidelity: invalid}
"""
# Until it is ended: for hours, and so beyond the test on a slow machine too.
PING = ("ping", "-c", "100000", "-i", "0.1")


@contextmanager
def pinging(
    network: Standing, sender: str, receiver: str
) -> Iterator[None]:
    """One VM pings another one for the block."""
    command = network.command("exec", sender, "--", *PING, receiver)
    with subprocess.Popen(
        command, env=network.environment, stdout=subprocess.DEVNULL
    ) as child:
        try:
            yield
        finally:
            child.terminate()


def shown(path: Path) -> list[str]:
    """A file's packets, by tcpdump."""
    done = subprocess.run(
        ["tcpdump", "-n", "-r", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_packets_are_seen_where_they_pass(
    standing: Standing,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert standing.run("capture", "a.0").returncode == 2
    assert standing.up().returncode == 0
    for name in ("a", "b"):
        at = ("--at", "0:1", "--at", "2:1")
        standing.good("tenant", "add", name, *RATE, *at)
    unknown = standing.run("capture", "a.7")
    assert unknown.returncode == 2
    assert "VMs: a.0, a.1, b.0, b.1; tenants: a, b" in unknown.stderr
    assert "rack 0 - core 0" in unknown.stderr
    with pinging(standing, "a.0", "a.1"), pinging(standing, "b.0", "b.1"):
        enough = ("--count", "4", "icmp")
        addresses = {}
        for name in ("a", "b"):
            tenant = standing.good("tenant", "show", name, "--json")
            addresses[name] = [vm["ip"] for vm in json.loads(tenant)["vms"]]
        # A VM sees its own tenant's packets alone.
        text = standing.good("capture", "a.0", *enough)
        assert len(text.splitlines()) == 4
        for line in text.splitlines():
            assert all(ip in line for ip in addresses["a"])
        # By the names that resolve in the VM.
        text = standing.good(
            *("capture", "a.0", "--count", "2", "dst", "host", "a.1")
        )
        assert all("echo request" in line for line in text.splitlines())
        # Both ping by now, however long their programs take to start.
        standing.good("capture", "b.0", "--count", "1", "icmp")
        # A link carries both tenants' in both directions; its name in any order.
        link = tmp_path / "link.pcap"
        done = standing.run(
            *("capture", "core 0 - rack 0", "-w", str(link), "--json"),
            *("--seconds", "3", "icmp"),
        )
        record = json.loads(done.stdout)
        lines = shown(link)
        assert record["captured"] == len(lines)
        assert link.stat().st_mode & 0o7777 == 0o600
        for ips in addresses.values():
            assert any(f"{ips[0]} > {ips[1]}" in line for line in lines)
            assert any(f"{ips[1]} > {ips[0]}" in line for line in lines)
        # A tenant's: each packet where it leaves, and where it arrives.
        both = tmp_path / "both.pcapng"
        stored = standing.run("capture", "a", "-w", str(both), *enough)
        assert stored.returncode == 0
        assert "8 packets captured" in stored.stderr
        assert len(shown(both)) == 8
        refused = standing.run("capture", "a", "no", "such", "words")
        assert refused.returncode == 2
        # What is written to a pipe is a file too, whoever ends it.
        piped = subprocess.Popen(
            standing.command("capture", "b.1", "-w", "-", "icmp"),
            env=standing.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert piped.stdout is not None
        first = piped.stdout.read(24 + 2 * (16 + 98))
        piped.send_signal(signal.SIGINT)
        rest, said = piped.communicate(timeout=60)
        assert piped.returncode == 0
        assert b"packets captured" in said
        (tmp_path / "pipe.pcap").write_bytes(first + rest)
        assert len(shown(tmp_path / "pipe.pcap")) >= 2
        # The lines of the documentation, as they are typed there.
        page = PAGE.read_text("utf-8")
        block = page[page.index("## Seeing packets") :]
        typed = block.split("```console\n")[1].split("```")[0]
        folder = tmp_path / "typed"
        folder.mkdir()
        for line in typed.splitlines():
            words = shlex.split(line.removeprefix("$ sudo testbed "))
            done = subprocess.run(
                standing.command(*words),
                env=standing.environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, line + done.stderr
    # It ends with the network.
    waiting = subprocess.Popen(
        standing.command("capture", "a"), env=standing.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert waiting.stderr is not None
    assert "capturing at a.0 to a.1" in waiting.stderr.readline()
    time.sleep(1)
    standing.good("down")
    waiting.communicate(timeout=60)
    assert standing.marks == []


def test_a_runs_packets_are_seen_until_their_job_has_ended(
    testbed: Testbed,  # noqa: F811
) -> None:
    """A capture ends with its job and not with the run."""
    mark = f"5{os.getpid()}"
    testbed.file.write_text(TWO.replace("MARK", mark), encoding="utf-8")
    run = testbed.start()
    # Its output is read, or it would stop at a full pipe.
    reader = threading.Thread(target=run.communicate)
    testbed.until("job_started", run, times=2)
    reader.start()
    unknown = testbed.run("capture", "ring.9")
    assert unknown.returncode == 2
    assert "ring.0, ring.1, ring.2, ring.3" in unknown.stderr
    # The ring's VMs are below one rack.
    for target in ("ring.0", "server 0 - rack 0"):
        enough = ("--count", "3", "--seconds", "60")
        done = testbed.run("capture", target, *enough)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 3
    command = testbed.command("capture", "sleeping.0", "host", "127.0.0.9")
    with subprocess.Popen(
        command,
        env=testbed.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as capturing:
        assert capturing.stderr is not None
        assert "capturing at sleeping.0" in capturing.stderr.readline()
        wait_until(lambda: len(sleepers(mark)) == 2, "programs in both VMs")
        for pid in sleepers(mark):
            # The end of the first one ends the job, and so perhaps the second one.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        _, said = capturing.communicate(timeout=60)
    assert capturing.returncode == 0, said
    assert "sleeping.0 is not there any more: its job has ended" in said
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    reader.join()
    assert run.returncode == 130
    assert list(testbed.state.glob(".*.json")) == []
