"""Prints the paper's Fig. 1 with your functions: the DRU of both shapes, and what is chosen."""

import search

FIG_1 = {"racks": [{"link": 1, "servers": [{"link": 1, "slots": 4}] * 6}]}
SPREAD = {"start": 0, "end": 1, "bandwidth": 1, "placed": [1] * 6}
SCALED = {"start": 0, "end": 2, "bandwidth": 0.5, "placed": [4, 2, 0, 0, 0, 0]}
REQUEST = {"at": 0, "vms": 6, "bandwidth": 1, "duration": 1, "deadline": 2}

for shape in (SPREAD, SCALED):
    racks, servers = search.dru(FIG_1, [shape], 0, 2)
    print(f"b' = {shape['bandwidth']}: u of the rack {racks:.3f}, of all servers {servers:.3f}")
found = search.search(FIG_1, [], REQUEST, 0)
print(f"chosen: b' = {found['bandwidth']:.3g} at {found['start']:.3g}, VMs {found['placed']}")
