"""Names that programs find in a job's VM, as text."""

from __future__ import annotations

from jobs.vm_names import accounts_text, hosts_text, vm_name


def test_vms_have_two_names_beside_the_machines() -> None:
    text = hosts_text(
        "127.0.0.1\tlocalhost\n\n", "sort", ["10.0.4.1", "10.0.4.2"]
    )
    assert text == (
        "127.0.0.1\tlocalhost\n10.0.4.1\tvm0 sort.0\n10.0.4.2\tvm1 sort.1\n"
    )
    assert vm_name(1) == "vm1"


def test_the_vms_user_has_an_account() -> None:
    text = accounts_text(
        "root:x:0:0::/root:/bin/sh\n", 1_900_000_003, 1000, "/vm/a"
    )
    assert text.splitlines() == [
        "root:x:0:0::/root:/bin/sh",
        "vm-user:x:1900000003:1000::/vm/a:/bin/sh",
    ]
