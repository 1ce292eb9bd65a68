"""The controller imports all it needs while it is root: a home of mode 0700 hides the checkout."""

from __future__ import annotations

import subprocess
import sys

import pytest

READS = """
import sys
from controller import api, values
values.load_adapters(values.NetworkSwitches, values.Tenant, api.WaitRequest)
before = set(sys.modules)
network = values.NetworkSwitches(())
assert values.from_json(values.NetworkSwitches, values.to_json(network)) == network
try:
    values.from_json(values.Tenant, b'{"id": 1}')
except values.InvalidValues:
    pass
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.slow
def test_reading_a_body_imports_nothing_that_was_not_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
