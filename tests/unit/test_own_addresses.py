"""Ports and addresses of tests: alike neither in one process nor in two."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.own_addresses import (
    PORTS_EACH,
    free_port,
    loopback_subnet,
)

TAKEN = """
import json
from tests.support.own_addresses import free_port, loopback_subnet
print(json.dumps([free_port(), loopback_subnet()]))
"""


def test_no_two_ports_of_a_process_are_alike() -> None:
    ports = [free_port() for _ in range(PORTS_EACH // 2)]
    assert len(set(ports)) == len(ports)


def test_another_process_has_other_ports_and_addresses() -> None:
    ports = {free_port() for _ in range(PORTS_EACH)}
    subnets = {loopback_subnet() for _ in range(256)}
    other = subprocess.run(
        [sys.executable, "-c", TAKEN],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    port, subnet = json.loads(other.stdout)
    assert port not in ports
    assert subnet not in subnets
