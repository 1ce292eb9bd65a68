"""``testbed plan FILE``: the flows and tc text of an experiment; no root, no effects."""

from __future__ import annotations

from typing import Annotated

import typer

from testbed.cli import console
from testbed.cli.options import ExperimentPath, Json, Lenient, Seed, Settings, overrides_of
from testbed.runs.planned import Planned, planned
from testbed.spec.load import load_experiment

JobId = Annotated[str | None, typer.Option("--job", help="Only this job's text.")]
NoNetwork = Annotated[
    bool, typer.Option("--tenants-only", help="Leave out what the network itself gets.")
]


def plan(
    file: ExperimentPath,
    settings: Settings = None,
    seed: Seed = None,
    job: JobId = None,
    tenants_only: NoNetwork = False,
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Show what a run would install: bridges, limits, flows; job by job, as exact text.

    Placements are the simulator's: live ends that come earlier or later can move later jobs.
    """
    experiment = load_experiment(file, overrides_of(settings, seed, lenient=lenient))
    plans = [planned(experiment, policy) for policy in experiment.policies]
    if as_json:
        console.print_json([one.to_json() for one in plans])
        return
    for one in plans:
        console.print_text(_text(one, job, tenants_only=tenants_only))


def _text(one: Planned, job: str | None, *, tenants_only: bool) -> str:
    parts: list[str] = []
    if not tenants_only and job is None:
        parts.append(f"### policy {one.policy}: the network\n{one.network_text}")
    parts += [
        f"### policy {one.policy}: {tenant.summary}\n{tenant.text}"
        for tenant in one.tenants
        if job is None or tenant.job_id == job
    ]
    parts += [
        f"### policy {one.policy}: {job_id} is rejected: {reason}\n"
        for job_id, reason in one.refused
        if job is None or job_id == job
    ]
    return "\n".join(parts)
