"""Counters of a VM's network, as the kernel writes them."""

from __future__ import annotations

import shutil

import pytest

from jobs.live import vm_counters
from jobs.live.agent_protocol import VmTraffic
from jobs.live.vm_counters import traffic_of, vm_traffic

DEV = """\
Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop
    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0
  eth0: 1000 10 0 0 0 0 0 0 66000 3 0 0 0 0 0 0
"""
SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: ActiveOpens OutSegs RetransSegs
Tcp: 1 44 5
"""
NETSTAT = """\
TcpExt: SyncookiesSent TCPTimeouts TCPRetransFail
TcpExt: 0 1 3
IpExt: OutOctets
IpExt: 5
"""


TEXT = DEV + SNMP + NETSTAT


def test_the_interfaces_and_tcps_counters_are_read() -> None:
    assert traffic_of(TEXT) == VmTraffic(66000, 3, 1000, 10, 44, 2, 1)


def test_a_vm_counts_from_its_start() -> None:
    earlier = VmTraffic(6000, 1, 100, 5, 40, 2, 0)
    since = traffic_of(TEXT).since(earlier)
    assert since == VmTraffic(60000, 2, 900, 5, 4, 0, 1)


def test_what_is_not_counted_is_said() -> None:
    with pytest.raises(ValueError, match="eth1"):
        traffic_of(TEXT, "eth1")
    with pytest.raises(ValueError, match="TcpExt"):
        traffic_of(DEV + SNMP)


def test_this_machines_counters_have_the_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vm_counters, "INTERFACE", "lo")
    text = vm_counters.READER
    assert shutil.which(text[0])
    monkeypatch.setattr(vm_counters, "READER", ("cat", "/no/such/file"))
    assert vm_traffic() is None
    monkeypatch.setattr(vm_counters, "READER", text)
    here = vm_traffic()
    assert here is None or here.segments >= 0


def test_a_kernel_without_a_counter_counts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = TEXT.replace("TCPRetransFail", "TCPOther")
    monkeypatch.setattr(vm_counters, "READER", ("printf", "%s", TEXT))
    assert vm_traffic() is not None
    monkeypatch.setattr(vm_counters, "READER", ("printf", "%s", other))
    assert vm_traffic() is None
