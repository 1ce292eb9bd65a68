"""One policy of an experiment through the engine, between its first and its last event."""

from __future__ import annotations

from collections.abc import Callable

from testbed import events
from testbed.backends.sim.backend import Meter, SimulatedBackend
from testbed.backends.sim.sharing import Sharing, Weights
from testbed.embedding.registry import embedder
from testbed.engine.backend import Backend
from testbed.engine.engine import Engine
from testbed.results.topology import topology_record
from testbed.schedulers.bl import COUPLINGS
from testbed.schedulers.policy import Policy
from testbed.schedulers.registry import POLICIES, build_policy
from testbed.spec.experiment import Experiment, PolicySpec

Sink = Callable[[events.Event], None]


def tee(*sinks: Sink) -> Sink:
    """One sink that hands every event to all of them, in order."""

    def to_all(event: events.Event) -> None:
        for sink in sinks:
            sink(event)

    return to_all


def unchanged(policy: Policy) -> Policy:
    """The policy as it is built."""
    return policy


def play(
    experiment: Experiment,
    policy: PolicySpec,
    backend: Backend,
    sink: Sink,
    around: Callable[[Policy], Policy] = unchanged,
) -> None:
    """Run one policy to its end. Whatever stops it, the stream ends in ``run_ended`` saying so.

    ``around`` puts an observer, such as a stopwatch, between engine and policy.
    """
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
    engine = Engine(experiment.datacentre, experiment.jobs, around(built), backend, sink)
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


def simulated(
    experiment: Experiment, policy: PolicySpec, meter: Meter | None = None
) -> SimulatedBackend:
    """The experiment's simulated backend, where best-effort jobs compete as the policy says.

    ``meter`` hears what they send up the servers' links.
    """
    kind = POLICIES[policy.name]
    coupling = {**kind.parameters, **dict(policy.parameters)}.get("coupling")
    chosen = next((known for known in COUPLINGS if known == coupling), COUPLINGS[0])
    weights: Weights = "proximate" if kind.weighs else "equal"
    sharing = Sharing(chosen, weights=weights)
    return SimulatedBackend(
        experiment.datacentre,
        sharing,
        experiment.seed,
        meter,
        experiment.interference,
    )
