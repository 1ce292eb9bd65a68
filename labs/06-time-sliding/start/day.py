"""Prints an experiment file for the six requests of day.json: python3 day.py vc | search

`vc`: as they are asked for, for the policy vc. `search`: as your search() and as_job() want them.
"""

import json
import sys
from pathlib import Path

import search

GAMMA = 0.12


def planned(day):
    """Your jobs; each reservation stands when the next request comes."""
    reservations, jobs = [], []
    for number, request in enumerate(day["requests"]):
        found = search.search(day["centre"], reservations, request, GAMMA)
        print(f"j{number}: {request} -> {found}", file=sys.stderr)
        if found is not None:
            reservations.append(found)
            jobs.append((number, search.as_job(request, found)))
    return jobs


def written(jobs, policy):
    """The experiment file: seconds and Mbit/s."""
    print(f"""name: day-{policy}
seed: 1
topology: {{kind: tree, fanout: [2, 2], links: 20 Mbit/s, slots_per_server: 4}}
policies: [{policy}]
workload:
  kind: jobs
  jobs:""")
    for number, job in jobs:
        rates = [
            f"{key}: {job[key] * 1e6:.0f} bit/s" for key in ("bandwidth", "granted") if key in job
        ]
        times = [f"{key}: {job[key] * 1e3:.0f} ms" for key in ("at", "duration", "deadline")]
        print(f"    - {{id: j{number}, vms: {job['vms']}, {', '.join(rates + times)}}}")


the_day = json.loads((Path(__file__).parent / "day.json").read_text("utf-8"))
if sys.argv[1:] == ["vc"]:
    written(enumerate(the_day["requests"]), "vc")
else:
    written(planned(the_day), "scripted")
