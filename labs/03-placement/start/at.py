"""Prints a placement as `testbed tenant add` wants it: python3 at.py greedy 8 6

Calls `greedy` or `place` of your placement.py with your our_tree().
"""

import sys

import placement

function, vms, bandwidth = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
found = getattr(placement, function)(placement.our_tree(), vms, bandwidth)
if found is None:
    sys.exit(f"{function}(our_tree(), {vms}, {bandwidth}) returned None")
print(*(f"--at {server}:{count}" for server, count in enumerate(found) if count))
