"""Folders of VMs on a network that stays up: each has its own, while its tenant
is there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emu.test_up import Standing, standing  # noqa: F401 - a fixture

MARK = "/tmp/hosenet-mark"  # noqa: S108 - in VMs
ADD = ("tenant", "add", "a", "--vms", "2", "--bandwidth", "9 Mbit/s")


@pytest.mark.smoke
def test_a_vms_folders_are_its_own_and_end_with_its_tenant(
    standing: Standing,  # noqa: F811
) -> None:
    standing.up()
    standing.good(*ADD)
    write = f"echo of $HOSENET_VM > {MARK}; ls /proc | grep -c '^[0-9]'"
    assert int(standing.inside("a.0", "sh", "-c", write).stdout) <= 5
    assert standing.inside("a.0", "cat", MARK).stdout == "of a.0\n"
    assert standing.inside("a.1", "cat", MARK).returncode == 1
    assert not Path(MARK).exists()
    mounts = Path("/proc/mounts").read_text()
    assert "/vms/" not in mounts
    # Its files are found where it is called from, and by their whole paths.
    # Folders on the way are as closed there as here.
    assert standing.inside("a.1", "cat", str(standing.file)).returncode == 1
    for folder in standing.file.parents:
        if folder.name.startswith(("pytest-", "test_")):
            folder.chmod(0o755)
    standing.file.chmod(0o644)
    standing.good("tenant", "remove", "a")
    standing.good(*ADD)
    named = standing.inside("a.1", "cat", str(standing.file))
    assert named.stdout == standing.file.read_text()
    standing.good("tenant", "remove", "a")
    standing.good(*ADD)
    assert standing.inside("a.0", "cat", MARK).returncode == 1
    assert standing.run("measure", "a", "--seconds", "1").returncode in (
        0,
        1,
    )
