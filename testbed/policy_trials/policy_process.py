"""Experiments simulated in a fresh process: texts of files in, lines of events
out.

    python -m testbed.policy_trials.policy_process TIMES < texts.json >
    lines.json

Each experiment is run so many times, by an instance of its policy each; a run
that fails ends in a line with the error. The process has a hash seed of its own
(PYTHONHASHSEED).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.python_child import (
    SEEDED,
    python_command,
    without_python_variables,
)
from testbed.errors import RunFailed
from testbed.play.playing import play, simulated
from testbed.policy_trials.timed_policy import TimedPolicy
from testbed.record.stored_json import plain_value
from testbed.spec.experiment_file import parse_experiment

Lines = list[str]
TIMEOUT_S = 120
MOST_DECISIONS = 20_000
"""Limit of decisions in a run, which has a few dozen jobs."""


def lines_of(text: str) -> Lines:
    """Events of an experiment with one policy, as lines of JSON.

    A run that fails ends with a line that names the error.
    """
    experiment = parse_experiment(text, Path("policy check"))
    [policy] = experiment.policies
    lines: Lines = []
    try:
        play(
            experiment,
            policy,
            simulated(experiment, policy),
            sink=lambda event: lines.append(
                json.dumps(event.to_json(), default=plain_value)
            ),
            around=lambda built: TimedPolicy(built, [], MOST_DECISIONS),
        )
    except Exception as error:  # noqa: BLE001 - whatever the policy raises is its event, too
        lines.append(f"{type(error).__name__}: {error}")
    return lines


def in_fresh_process(
    texts: Sequence[str], hash_seed: int, times: int
) -> list[list[Lines]]:
    """Lines of each experiment's runs, ``times`` of each, in a new process.

    ``hash_seed``: the process's PYTHONHASHSEED. Raises RunFailed.
    """
    environment = without_python_variables() | {
        "PYTHONHASHSEED": str(hash_seed),
        # A policy of a module is where this process has found it.
        "PYTHONPATH": os.pathsep.join(
            path or str(Path.cwd()) for path in sys.path
        ),
    }
    command = python_command(__name__, str(times), flags=SEEDED)
    try:
        ended = subprocess.run(
            command,
            input=json.dumps(list(texts)),
            env=environment,
            check=True,
            text=True,
            errors="replace",
            capture_output=True,
            timeout=TIMEOUT_S,
        )
        lines: list[list[Lines]] = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        raise RunFailed(
            f"{len(texts)} small runs take longer than {TIMEOUT_S} s"
        ) from None
    except subprocess.CalledProcessError as error:
        words = error.stderr.strip().splitlines() or ["it said nothing"]
        raise RunFailed(
            f"a fresh process ends with {error.returncode}: {words[-1]}"
        ) from error
    # As where the policy ends the process by itself.
    except ValueError:
        raise RunFailed("a fresh process ends without a result") from None
    return lines


def main() -> None:
    """Reads texts on standard input, and writes the lines of their runs."""
    texts = json.load(sys.stdin)
    times = int(sys.argv[1])
    # Standard output is for the result alone: a policy may print, and so may a
    # library that it uses, past Python's own streams.
    with os.fdopen(os.dup(1), "w") as result:
        os.dup2(2, 1)
        runs = [[lines_of(text) for _ in range(times)] for text in texts]
        json.dump(runs, result)


if __name__ == "__main__":
    main()
