"""Plays a cell of a sweep: in the simulator, or on the live network by
``testbed run``.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.audit import Audit, audit_played
from testbed.errors import RunFailed
from testbed.events import Event
from testbed.owned_files import caller, remove_folder
from testbed.record.event_file import event_line
from testbed.record.folder import RunFolder
from testbed.record.metrics import Summary, Tally
from testbed.record.stored_json import regular_bytes
from testbed.record.verdicts import Verdicts, evaluate
from testbed.spec.experiment import Experiment
from testbed.spec.experiment_file import parse_experiment
from testbed.sweeps.result_store import cell_result, events_digest
from testbed.sweeps.sweep_plan import NOWHERE, used_files
from testbed.sweeps.tasks import Context, FileRef, laid_out

NO_SPEC = FileRef("", "", NOWHERE)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, and the task that computes it.

    ``values``: a value for each key of the sweep, the seed last. ``named``: by
    name, the files that the run reads, and installed plug-ins. The sweep adds
    ``spec``, the experiment file's text, and ``keep``, the place of the run
    folder if that is kept.
    """

    key: str
    live: bool
    name: str
    values: tuple[Any, ...]
    overrides: tuple[tuple[str, str], ...]
    named: Mapping[str, FileRef]
    spec: FileRef = NO_SPEC
    keep: Path | None = None

    @property
    def files(self) -> Mapping[str, FileRef]:
        sent = {
            name: ref
            for name, ref in self.named.items()
            if ref.path != NOWHERE
        }
        # The experiment file does not name itself: its name here is empty.
        return sent | {"": self.spec}

    def run(self, context: Context) -> Mapping[str, Any]:
        """Plays the cell. Raises RunFailed, or SpecErrors where its values do
        not go together.
        """
        if self.live:
            from testbed.sweeps.live_cell import played_live

            self.experiment(context)
            return played_live(
                name=self.name,
                files=self.files,
                overrides=self.overrides,
                keep=self.keep,
                context=context,
            )
        return {"result": self._simulated(self.experiment(context))}

    def experiment(self, context: Context) -> Experiment:
        """The cell's experiment. Raises RunFailed where it reads a file that is
        not in the cell's key.
        """
        text = regular_bytes(context.path(self.spec)).decode("utf-8-sig")
        # From the root, so that words of commands are the same wherever the
        # file lies.
        path = Path("/", self.name)
        experiment = parse_experiment(
            text, path, dict(self.overrides), self._places(context)
        )
        self._check_read(experiment)
        return experiment

    def _check_read(self, experiment: Experiment) -> None:
        """Raises RunFailed for files that the key does not name, or names with
        another content.
        """
        # Two values together may read what neither reads alone; the key was
        # made of single ones.
        if unknown := experiment.files.keys() - self.named.keys():
            raise RunFailed(
                f"the cell reads {', '.join(sorted(unknown))}, as none of its values alone does",
                "sweep one key that holds both values together",
            )
        # The key was made where the sweep began, with what lay there.
        for name, ref in used_files(experiment).items():
            known = self.named.get(name)
            if known is None or known.sha256 != ref.sha256:
                raise RunFailed(
                    f"{ref.name} is another one here than where the sweep began",
                    "install the same version, or start the sweep again",
                )

    def _places(self, context: Context) -> dict[str, Path]:
        """The files' places here. Python files lie beside each other, under
        their names.
        """
        places: dict[str, Path] = {}
        moved = False
        for name, ref in self.files.items():
            if name:
                places[name] = context.path(ref)
                moved |= places[name] != ref.path
        python_files = [name for name in places if name.endswith(".py")]
        # Where every file is at its own path nothing is copied.
        if not moved or not python_files:
            return places
        # A module imports the one beside it: together they make a folder,
        # named after its content so that cells with the same files share it.
        digest = hashlib.sha256()
        for name in python_files:
            digest.update(f"{name}\0{self.named[name].sha256}".encode())
        folder = context.scratch / digest.hexdigest()[:24]
        return places | laid_out(
            folder, {name: places[name] for name in python_files}
        )

    def _simulated(self, experiment: Experiment) -> dict[str, Any]:
        if self.keep is not None:
            return _kept(experiment, self.keep)
        # Here, so that planning a sweep loads neither engine nor report.
        from testbed.play.playing import (
            play,
            resolved_record,
            simulated,
            tee,
        )

        (policy,) = experiment.policies
        tally = Tally()
        history: list[Event] = []
        digest = hashlib.sha256()

        def hashed(event: Event) -> None:
            digest.update(event_line(event).encode())

        sink = tee(tally, history.append, hashed)
        play(experiment, policy, simulated(experiment, policy), sink)
        summary = tally.summary()
        resolved = resolved_record(experiment, policy)
        verdicts = evaluate(
            experiment.expect,
            tally.rows(),
            summary.fidelity,
            resolved["claims"],
        )
        checked = audit_played(history, resolved)
        return _result(summary, verdicts, checked, digest.hexdigest())


def _result(
    summary: Summary, verdicts: Verdicts, checked: Audit, events_sha256: str
) -> dict[str, Any]:
    failed = [
        result.name
        for result in checked.results
        if result.status == "failed"
    ]
    return cell_result(
        summary.to_json(),
        {"met": verdicts.met, "complaints": list(verdicts.complaints)},
        failed,
        events_sha256,
    )


def _kept(experiment: Experiment, place: Path) -> dict[str, Any]:
    """The result of a simulated run whose folder is written and kept at
    ``place``.
    """
    from testbed.play.playing import run_simulated

    folder = RunFolder(place, caller())
    # Files of an interrupted attempt would mix with this one's.
    with suppress(FileNotFoundError):
        remove_folder(place)
    folder.make()

    def unseen(_label: str, _jobs: int) -> Any:
        return nullcontext(lambda _event: None)

    (record,) = run_simulated(
        experiment, folder, unseen, ["testbed", *sys.argv[1:]]
    )
    # Of events.jsonl on the disk, which has the bytes that a cell without a
    # folder hashes in memory.
    digest = events_digest(place)
    results = record.results
    return _result(results.summary, results.verdicts, record.audit, digest)
