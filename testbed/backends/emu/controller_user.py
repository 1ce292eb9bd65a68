"""A user for the controller alone: a number that nothing on the machine has.

As nobody, or as the user who called sudo, it would be the user of programs
outside, which could end it or take a socket out of it.
"""

from __future__ import annotations

import grp
import secrets

from testbed.backends.emu.vm_users import USER_MAP, mapped_ids, used_ids

# Those that systemd gives to services for their time, and no distribution to
# accounts.
UIDS = range(61184, 65520)
TRIES = 64


def unused_uid() -> int | None:
    """A number without account, group or process; None where there is none."""
    taken = used_ids()
    taken.update(group.gr_gid for group in grp.getgrall())
    mapped = mapped_ids(USER_MAP)
    for _ in range(TRIES):
        uid = UIDS[secrets.randbelow(len(UIDS))]
        if uid in mapped and uid not in taken:
            return uid
    return None
