"""Users of programs in VMs: a user id per VM that nobody else here has.

Programs of the same user may stop each other, read each other's memory and take
each other's sockets, even from different VMs.
"""

from __future__ import annotations

import pwd
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import psutil

from controller.launch import User, unprivileged_user
from testbed.errors import MachineCannot
from testbed.plan.network_plan import Slot

# Above the ids of accounts and containers (systemd's list of user and group
# ids).
FIRST_ID = 1_900_000_000
RANGE_IDS = 65_536
MOST_RANGES = 1_000
USER_MAP = Path("/proc/self/uid_map")


class VmUsers:
    """The users of a network's VM slots.

    Successive tenants of a slot have the same user: a tenant's processes end
    before its slot is free. ``first_id`` is None where this machine has no free
    range, as in a container with few ids: then all programs have one user.
    ``callers_id``: the user who called sudo, who owns the jobs' programs.
    """

    def __init__(
        self, slots: Sequence[Slot], environment: Mapping[str, str]
    ) -> None:
        self.caller = unprivileged_user(environment)
        self.first_id = free_range(used_ids(), mapped_ids(USER_MAP))
        by_sudo = environment.get("SUDO_UID") == str(self.caller.uid)
        self.callers_id: int | None = None
        if by_sudo and self.first_id is not None:
            self.callers_id = self.caller.uid
        self._numbers = {slot: number for number, slot in enumerate(slots)}

    def of_program(self, slot: Slot) -> User:
        """User of programs that are started in a VM by hand."""
        if self.first_id is None:
            return self.caller
        number = self.first_id + self._numbers[slot]
        return User(f"vm{self._numbers[slot]}", number, number)

    def of_command(self, slot: Slot) -> User:
        """User of a job's own program.

        Under sudo it has the caller's group, whose files it may read.
        """
        user = self.of_program(slot)
        if self.callers_id is None:
            return user
        return User(user.name, user.uid, self.caller.gid)


def free_range(
    used: Collection[int], mapped: Sequence[range]
) -> int | None:
    """First id of a range without used ids.

    None where no such range is mapped. Raises MachineCannot if all that are
    mapped are used.
    """
    is_mapped = False
    for number in range(MOST_RANGES):
        first = FIRST_ID + number * RANGE_IDS
        ids = range(first, first + RANGE_IDS)
        # Lines of a map do not overlap; a range may reach from one into another.
        if sum(_n_common(ids, line) for line in mapped) < RANGE_IDS:
            continue
        is_mapped = True
        if not any(used_id in ids for used_id in used):
            return first
    if not is_mapped:
        return None
    raise MachineCannot(
        f"no {RANGE_IDS:,} user ids are free from {FIRST_ID:,} on",
        "VMs need some of their own: end the programs of these users",
    )


def _n_common(ids: range, others: range) -> int:
    return len(
        range(max(ids.start, others.start), min(ids.stop, others.stop))
    )


def used_ids() -> set[int]:
    """User ids of this machine's accounts and processes."""
    used = {account.pw_uid for account in pwd.getpwall()}
    for process in psutil.process_iter(["uids"]):
        if uids := process.info["uids"]:
            used.update(uids)
    return used


def mapped_ids(user_map: Path) -> list[range]:
    """Ids that this process's user namespace maps: a range each line.

    All of them under a kernel without user namespaces, which has no such file.
    """
    try:
        text = user_map.read_text("ascii")
    except FileNotFoundError:
        return [range(1 << 32)]
    mapped = []
    for line in text.splitlines():
        begin, _, count = line.split()
        mapped.append(range(int(begin), int(begin) + int(count)))
    return mapped
