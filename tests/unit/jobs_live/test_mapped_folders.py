"""A caller's folders in VMs: which they are, and whose everything else is."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.mapped_folders import callers_folder, user_map

ALL = (1 << 32) - 1


@pytest.mark.parametrize(
    ("caller", "user"), [(1000, 1_900_000_000), (1_900_000_005, 7), (1, 2)]
)
def test_each_id_has_one_and_the_callers_is_the_users(
    caller: int, user: int
) -> None:
    inside: list[range] = []
    outside: list[range] = []
    for line in user_map(caller, user).splitlines():
        first, shown_as, count = (int(word) for word in line.split())
        assert count > 0
        inside.append(range(first, first + count))
        outside.append(range(shown_as, shown_as + count))
        if caller in inside[-1]:
            assert shown_as == user
        else:
            assert first == shown_as
    for ranges in (inside, outside):
        ranges.sort(key=lambda ids: ids.start)
        for before, after in pairwise(ranges):
            assert before.stop <= after.start
    assert sum(map(len, inside)) == ALL - 1
    assert all(user not in ids for ids in inside)
    assert all(caller not in ids for ids in outside)


def name_of(descriptor: int | None) -> str | None:
    if descriptor is None:
        return None
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    finally:
        os.close(descriptor)


def test_the_uppermost_folder_of_the_caller_is_found(
    tmp_path: Path,
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "file").touch()
    uppermost = tmp_path
    for above in tmp_path.parents[:-1]:
        if above.stat().st_uid == os.getuid():
            uppermost = above
    by_file = callers_folder(f"{inner}/file", os.getuid())
    assert name_of(by_file) == str(uppermost)
    assert callers_folder(str(inner), 54_321) is None
    assert callers_folder(f"{inner}/absent/file", 54_321) is None
