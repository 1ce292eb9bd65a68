"""A trial: one policy of an example file, some values replaced. It is played in both worlds."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import MachineCannot
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import load_experiment

EXAMPLES = Path(__file__).parents[2] / "examples"
DIGITS = 12
DEPENDS_NOT = ("expect", "overrides")
"""What of a resolved experiment changes nothing in what is played."""


@dataclass(frozen=True)
class Trial:
    """``file`` below ``examples/``, its policy, and values in place of the file's, by dotted key.

    ``policy`` is read as an entry of the file's ``policies``: a name, or ``{name: dcloud, …}``.
    """

    file: str
    policy: str
    settings: tuple[tuple[str, str], ...] = ()

    def experiment(self, repetition: int) -> Experiment:
        """The experiment: the first repetition has the file's seed, the next the one after it.

        Raises SpecErrors where file or settings are wrong, MachineCannot where the file or a trace
        that it names is not here.
        """
        path = EXAMPLES / self.file
        if not path.is_file():
            raise MachineCannot(
                f"{path} is not here", "reproduce live figures from a checkout of the project"
            )
        values = {**dict(self.settings), "policies": f"[{self.policy}]"}
        first = load_experiment(path, values)
        if repetition == 1:
            return first
        return load_experiment(path, {**values, "seed": str(first.seed + repetition - 1)})


def digest(experiment: Experiment) -> str:
    """What a run of it is filed under: all that is played, down to jobs or their trace's sum."""
    played = {k: v for k, v in experiment.resolved.items() if k not in DEPENDS_NOT}
    # Where a trace lies says nothing; its checksum is among the facts.
    played["workload_facts"] = {k: v for k, v in experiment.workload_facts.items() if k != "file"}
    text = json.dumps(played, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]
