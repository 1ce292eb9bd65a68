"""``python -m bench --list`` and ``python -m bench NAME [--quick] [--json]``.

Some benchmarks have options of their own: ``python -m bench NAME --help``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from types import ModuleType

from bench.samples import Result, machine
from testbed.backends.emu.interrupts import terminated_as_interrupt
from testbed.cli.console import print_error
from testbed.errors import TestbedError

BENCHMARKS = {
    "jsa-run": (
        "bench.jsa_run",
        "simulating JSA: 2,500 jobs on 1,600 machines",
    ),
    "jsa-draws": (
        "bench.jsa_draws",
        "JSA's Figure 5 simulated from sixty draws",
    ),
    "vmplace": (
        "bench.vmplace_states",
        "vmplace for 100 VMs, 1,600 and 8,000 machines",
    ),
    "transfer-accuracy": (
        "bench.transfer_accuracy",
        "measured over ideal time, five switches",
    ),
    "all-to-all": (
        "bench.all_to_all",
        "measured over estimated time of a job's shuffle",
    ),
    "rate-error": (
        "bench.rate_error",
        "what reserved transfers lose of their rate, by the caps' counters",
    ),
    "aggregate-load": (
        "bench.aggregate_load",
        "the largest reserved load that stays exact",
    ),
    "hostile-tenant": (
        "bench.hostile_tenant",
        "a guarantee beside 16 TCP flows and a UDP flood",
    ),
    "adversary": (
        "bench.adversary",
        "attacks on the testbed: tried, and got through",
    ),
    "enforcement": (
        "bench.enforcement",
        "bandwidth lent, given back and kept, in each mode",
    ),
    "mpi-behind": (
        "bench.mpi_behind",
        "MPI programs behind MPI programs: efficiency, and loss",
    ),
    "link-loss": (
        "bench.link_loss",
        "from a link's loss to the guarantee, k=4 and k=6",
    ),
    "live-scale": (
        "bench.live_scale",
        "live networks of 96 to 448 VMs: exactness, cost, limits",
    ),
    "switch-pass": (
        "bench.switch_pass",
        "a pass of ovs-vswitchd, by its bridges and ports",
    ),
    "network-up": (
        "bench.network_up",
        "fat-tree k=4 and k=8 up and down, beside plain Mininet",
    ),
    "tenant-in": ("bench.tenant_in", "a 32-VM tenant in, and re-rated"),
    "controller-state": (
        "bench.controller_state",
        "1,000 tenants on a k=8 fat-tree of fake switches, after the controller's end",
    ),
    "job-start": (
        "bench.job_start",
        "a live job of 8 VMs from its placement to its first byte",
    ),
    "hardening-cost": (
        "bench.hardening_cost",
        "a job's start and exec, beside those of an earlier checkout",
    ),
    "stopped-controller": (
        "bench.stopped_controller",
        "verbs while the controller is stopped: seconds until they say so",
    ),
    "job-hour": (
        "bench.job_hour",
        "200 of them in an hour: what there is more of afterwards",
    ),
    "soak": (
        "bench.soak",
        "an hour of tenants that come, go and are measured: time, memory",
    ),
    "chaos": (
        "bench.chaos",
        "an hour of jobs and failures in ten minutes: all still agrees",
    ),
    "sigkills": (
        "bench.sigkills",
        "the run killed 100 times: nothing left, no one's touched",
    ),
    "lab-marks": (
        "bench.lab_marks",
        "the labs' live checks, repeated on a busy machine: margins",
    ),
    "headroom": (
        "bench.headroom",
        "what the live examples need of a machine in use, and their verdicts",
    ),
    "open-page": (
        "bench.open_page",
        "an hour of the live page in Chromium: memory, nodes, frames",
    ),
    "viewers": (
        "bench.viewers",
        "a live run with and without ten viewers of its page",
    ),
    "fidelity-cases": (
        "bench.fidelity_cases",
        "runs good and spoilt on purpose: the verdict",
    ),
    "verdicts": (
        "bench.fidelity_verdicts",
        "the fidelity verdict against the truth: its error rates",
    ),
    "dcloud-allocation": (
        "bench.dcloud_allocation",
        "one DCloud allocation, 8,000 servers",
    ),
    "dcloud-day": (
        "bench.dcloud_day",
        "simulating DCloud's default day: time and memory",
    ),
    "sweep-cells": (
        "bench.sweep_cells",
        "1,000 and 10,000 tiny cells: cost beside them, memory",
    ),
    "first-run": (
        "bench.first_run",
        "the first DCloud simulation of an installation",
    ),
    "dcloud-growth": (
        "bench.dcloud_growth",
        "allocation time by servers and by load, and a plot",
    ),
    "embed-exact": ("bench.embed_exact", "exact in loaded data centres"),
    "embed-oktopus": (
        "bench.embed_oktopus",
        "oktopus in loaded data centres",
    ),
    "fcfs-adaba": (
        "bench.fcfs_adaba",
        "1,000 jobs, FCFS + AdaBa on the k=6 fat-tree",
    ),
    "mbfcbs-100k": (
        "bench.mbfcbs_100k",
        "100,000 leases on 1,000 hosts; cost by hosts, and a plot",
    ),
    "easy-kth": (
        "bench.easy_kth",
        "EASY over all jobs of the KTH log, decisions and whole runs",
    ),
    "whole-run": (
        "bench.whole_run",
        "a simulation of the KTH log: engine, tables, audit, report",
    ),
    "easy-million": (
        "bench.easy_million",
        "peak memory of a million jobs under EASY",
    ),
    "cluster-tasks": (
        "bench.cluster_tasks",
        "tasks of a sweep on Dask: cost, memory, start",
    ),
    "amcbf-20k": (
        "bench.amcbf_20k",
        "CMCBF and AMCBF, 20,000 jobs on 320 nodes",
    ),
}

FIGURES = ("median", "mean", "p99", "min", "max")
VERDICTS = {None: "", True: "  met", False: "  MISSED"}


def main(argv: list[str] | None = None) -> int:
    """Run one benchmark; exit 1 where a stated target was missed, else the exit
    code of the error that ended it.
    """
    common = _common_options()
    # Parsed twice: which options there are depends on the benchmark that is
    # named.
    name = common.parse_known_args(argv)[0].name
    if name is None:
        _parser(__doc__, common).parse_args(argv)
        _show_list()
        return 0
    module = importlib.import_module(BENCHMARKS[name][0])
    parser = _parser(module.__doc__, common)
    if hasattr(module, "add_options"):
        module.add_options(parser)
    args = parser.parse_args(argv)
    if args.list:
        _show_list()
        return 0
    return _run(module, args)


def _common_options() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "name", nargs="?", choices=sorted(BENCHMARKS), metavar="NAME"
    )
    common.add_argument(
        "--list", action="store_true", help="the benchmarks' names"
    )
    common.add_argument(
        "--quick", action="store_true", help="fewer repetitions"
    )
    common.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on standard output",
    )
    return common


def _parser(
    about: str | None, common: argparse.ArgumentParser
) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="python -m bench", description=about, parents=[common]
    )


def _run(module: ModuleType, args: argparse.Namespace) -> int:
    """Run and show a benchmark; returns the exit code."""
    # Before the run, as its load is part of it.
    where = machine()
    try:
        results = _results(module, args)
    except TestbedError as error:
        print_error(error, as_json=args.json)
        return error.exit_code
    if args.json:
        _show_json(args.name, where, results)
    elif hasattr(module, "table"):
        sys.stdout.write(module.table(results) + "\n")
    else:
        _show(args.name, where, results)
    for result in results:
        if result.meets is False:
            return 1
    return 0


def _results(module: ModuleType, args: argparse.Namespace) -> list[Result]:
    """A benchmark that has options of its own gets them beside ``quick``."""
    options: tuple[argparse.Namespace, ...] = ()
    if hasattr(module, "add_options"):
        options = (args,)
    # Ended by a word, it removes what it made, as after Ctrl-C.
    with terminated_as_interrupt():
        results: list[Result] = module.run(args.quick, *options)
    return results


def _show_list() -> None:
    for benchmark, (_, what) in BENCHMARKS.items():
        sys.stdout.write(f"{benchmark:20} {what}\n")


def _show_json(
    name: str, where: dict[str, object], results: list[Result]
) -> None:
    """The first row's fields at the top, then machine and all rows."""
    rows = [result.to_json() for result in results]
    document: dict[str, object] = {}
    if rows:
        document.update(rows[0])
    document.update(name=name, machine=where, rows=rows)
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def _show(
    name: str, where: dict[str, object], results: list[Result]
) -> None:
    lines = [name]
    for key, value in where.items():
        lines.append(f"  {key}: {value}")
    headings = "".join(f" {key:>9}" for key in FIGURES)
    lines += ["", f"{'':44} {'n':>5}{headings}  unit   target"]
    for result in results:
        row = result.to_json()
        figures = "".join(f" {row[key]:>9.4g}" for key in FIGURES)
        lines.append(
            f"{result.name:44} {row['n']:>5}{figures}"
            f"  {result.unit:6} {result.target}{VERDICTS[result.meets]}"
        )
        for key, value in result.extra.items():
            lines.append(f"{'':44}   {key}: {value}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
