"""``testbed up FILE``: builds a network that stays up."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.backends.emu.emulation import LiveOptions
from testbed.cli import console, options
from testbed.cli.machine import require_live
from testbed.cli.options import Json
from testbed.cli.standing import headline
from testbed.cli.watch import UP, start_page
from testbed.errors import BadInput
from testbed.spec.experiment_file import load_experiment
from testbed.standing.keeper import StandingSetup, bring_up

Jobs = Annotated[
    bool, typer.Option("--jobs", help="Admit the file's jobs as tenants.")
]
OPEN = "Without reservations: every VM slot is a host, h1 to hN, and all reach each other."
Open = Annotated[bool, typer.Option("--open", help=OPEN)]


def up(
    file: options.ExperimentPath,
    jobs: Jobs = False,
    open_to_all: Open = False,
    settings: options.Settings = None,
    openflow_port: options.OpenFlowPort = 6653,
    api_port: options.ApiPort = 8653,
    controller: options.Library = None,
    prefix: options.Prefix = "hn",
    builder: options.Builder = "batched",
    watch: options.Watch = False,
    as_json: Json = False,
) -> None:
    """Build a file's network and leave it there, for tenants that come and go.

    Exit codes: 0 it is up; otherwise nothing is left: 2 bad file, 3 this
    machine cannot, 4 it failed, 130 interrupted.
    """
    if jobs and open_to_all:
        raise BadInput(
            "--jobs makes tenants, --open has all slots in one: choose one"
        )
    experiment = load_experiment(file, options.overrides_of(settings))
    # After the file has been read: its mistakes are named without root, too.
    require_live(prefix, f"testbed up {file}")
    notes = experiment.topology_notes
    if jobs:
        notes = experiment.notes
    for note in notes:
        console.say(note)
    live = LiveOptions(
        prefix=prefix,
        openflow_port=openflow_port,
        api_port=api_port,
        library=controller,
        builder=builder,
    )
    setup = StandingSetup(
        experiment, live, with_jobs=jobs, open=open_to_all
    )
    state = bring_up(setup, console.say)
    if watch:
        try:
            start_page(UP, state.pid)
        except KeyboardInterrupt:
            # Exit code 130 would say that the network is no longer up.
            console.say("no live page: interrupted")
    if as_json:
        console.print_json(state)
        return
    console.print_text(headline(state))
    next_command = "tenant add NAME --vms N --bandwidth '100 Mbit/s'"
    if open_to_all:
        next_command = "mininet"
    console.say(f"next: sudo testbed {next_command}")
    console.say("its end: sudo testbed down")
