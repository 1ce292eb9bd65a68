"""A user id for the controller that nothing else on the machine has.

As nobody, or as the user who called sudo, the controller would share its user
with other programs, which could end it or take its sockets.
"""

from __future__ import annotations

import grp
import secrets

from testbed.backends.emu.vm_users import USER_MAP, mapped_ids, used_ids

# The ids of systemd's dynamic users, which no distribution gives to accounts.
UIDS = range(61184, 65520)
TRIES = 64


def unused_uid() -> int | None:
    """A number without account, group or process; None where there is none."""
    taken = used_ids()
    taken.update(group.gr_gid for group in grp.getgrall())
    mapped = mapped_ids(USER_MAP)
    for _ in range(TRIES):
        uid = UIDS[secrets.randbelow(len(UIDS))]
        is_mapped = any(uid in line for line in mapped)
        if is_mapped and uid not in taken:
            return uid
    return None
