"""Settings of VMs' TCP: a retry every second, for minutes."""

from __future__ import annotations

from testbed.backends.emu.traffic_control import BASE_SYSCTLS

LEAST_RTO_S = 0.2
# Longer than a machine that runs something else has been seen to stand still (16 s).
PATIENCE_S = 120.0


def patience_s(most_rto_s: float, retries: int) -> float:
    """The time after which TCP gives up (ETIMEDOUT): waits double up to the longest one
    (Linux, tcp_model_timeout)."""
    total_s = 0.0
    for number in range(retries + 1):
        total_s += min(LEAST_RTO_S * 2.0**number, most_rto_s)
    return total_s


def test_a_connection_survives_a_standstill_of_minutes() -> None:
    settings = dict(BASE_SYSCTLS)
    most_rto_s = int(settings["net.ipv4.tcp_rto_max_ms"]) / 1000
    retries = int(settings["net.ipv4.tcp_retries2"])
    # The kernel keeps it in a byte.
    assert retries <= 255
    assert patience_s(most_rto_s, retries) >= PATIENCE_S
    # Linux's default of 15 would give up far earlier.
    assert patience_s(most_rto_s, 15) < 16.0
