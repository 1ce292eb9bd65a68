"""User ids for VMs of tests that make no network."""

from __future__ import annotations

from testbed.backends.emu.vm_users import FIRST_ID, MOST_RANGES, RANGE_IDS

# The network of another test takes the first range that nobody uses at that moment.
OUTSIDE_RANGES = FIRST_ID + MOST_RANGES * RANGE_IDS
