"""One policy of an experiment through the engine, between its first and its last event."""

from __future__ import annotations

from collections.abc import Callable

from testbed import events
from testbed.backends.sim.backend import SimulatedBackend
from testbed.backends.sim.sharing import Sharing
from testbed.embedding.base import embedder
from testbed.engine.backend import Backend
from testbed.engine.engine import Engine
from testbed.results.topology import topology_record
from testbed.schedulers.registry import build_policy, policy_kind
from testbed.spec.experiment import Experiment, PolicySpec

Sink = Callable[[events.Event], None]


def tee(*sinks: Sink) -> Sink:
    """One sink that hands every event to all of them, in order."""

    def to_all(event: events.Event) -> None:
        for sink in sinks:
            sink(event)

    return to_all


def play(experiment: Experiment, policy: PolicySpec, backend: Backend, sink: Sink) -> None:
    """Run one policy to its end. Whatever stops it, the stream ends in ``run_ended`` saying so."""
    sink(
        events.RunStarted(
            0.0,
            experiment.name,
            policy.label,
            backend.name,
            experiment.seed,
            topology_record(experiment.datacentre),
        )
    )
    built = build_policy(policy.name, embedder(experiment.embedder), dict(policy.parameters))
    engine = Engine(experiment.datacentre, experiment.jobs, built, backend, sink)
    try:
        engine.run()
    except KeyboardInterrupt:
        sink(events.RunEnded(engine.now_s, "interrupted", "interrupted by the user"))
        raise
    except Exception as error:
        sink(events.RunEnded(engine.now_s, "failed", str(error) or type(error).__name__))
        raise


def dry_run(experiment: Experiment, policy: PolicySpec) -> list[events.Event]:
    """The events of the same policy and jobs in the simulator (decision 0003)."""
    history: list[events.Event] = []
    play(experiment, policy, simulated(experiment, policy), history.append)
    return history


def simulated(experiment: Experiment, policy: PolicySpec) -> SimulatedBackend:
    """The experiment's simulated world, where best-effort jobs compete as the policy says."""
    assumed = policy_kind(policy.name).sharing_of(dict(policy.parameters))
    sharing = Sharing(assumed.flow_dependency, weights=assumed.weights)
    return SimulatedBackend(
        experiment.datacentre,
        sharing,
        experiment.seed,
        interference=experiment.interference,
    )
