"""SWIM's Hadoop traces: job id, submission and gap in seconds, bytes that maps
read, that are shuffled, and that reducers write.

One job a line, six fields apart by tabs; paths that follow them are not read.
A line has no number of tasks: they are ⌈map bytes / 64 MB⌉ maps, and one
reducer where anything is shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.workload.traces import (
    Complaints,
    Trace,
    quoted_text,
    whole_number,
)

FIELDS = (
    "job",
    "submit time",
    "gap",
    "map input",
    "shuffle",
    "reduce output",
)
BLOCK_BYTES = 64_000_000
_GREATEST = 10**18


@dataclass(frozen=True, slots=True)
class SwimJob:
    """A line of the trace. Times in seconds, sizes in bytes."""

    name: str
    submit_s: int
    map_bytes: int
    shuffle_bytes: int
    output_bytes: int
    line: int

    @property
    def tasks(self) -> int:
        """Maps and reducers: one map a block of input, one reducer where there
        is a shuffle.
        """
        maps = -(-self.map_bytes // BLOCK_BYTES)
        reducers = 1 if self.shuffle_bytes else 0
        # A job that neither reads nor shuffles still writes.
        return max(1, maps + reducers)

    @property
    def bytes_per_vm(self) -> float:
        """Mean bytes that a task, in its VM, reads, shuffles and writes."""
        moved = self.map_bytes + self.shuffle_bytes + self.output_bytes
        return moved / self.tasks


def read_swim(
    path: Path,
    *,
    lenient: bool = False,
) -> Trace[SwimJob]:
    """The jobs of a file. Raises :class:`TraceErrors` with all that is wrong,
    and OSError.
    """
    complaints = Complaints()
    jobs: list[SwimJob] = []
    line_of: dict[str, int] = {}
    with complaints.reading(path) as lines:
        for number, text in enumerate(lines, 1):
            complaints.line = number
            if not text.strip():
                continue
            job = _job(text.rstrip("\r\n"), number, complaints)
            if job is not None and _fits(job, line_of, complaints):
                jobs.append(job)
                line_of[job.name] = number
    return complaints.trace(path, jobs, lenient=lenient)


def _job(
    text: str,
    line: int,
    complaints: Complaints,
) -> SwimJob | None:
    words = text.split("\t")
    if len(words) == 1:
        complaints.add(
            line,
            1,
            f"{quoted_text(text)} is no line of this format: 6 fields apart by tabs",
        )
        return None
    if not complaints.has_fields(
        line, len(text), n_fields=len(words), wanted=len(FIELDS)
    ):
        return None
    values = _values(words, line, complaints)
    if values is None:
        return None
    if not complaints.check_name(line, 1, "field 1 (job)", words[0]):
        return None
    # The gap is not needed: submissions give it.
    submit_s, _, map_bytes, shuffle_bytes, output_bytes = values
    return SwimJob(
        name=words[0],
        submit_s=submit_s,
        map_bytes=map_bytes,
        shuffle_bytes=shuffle_bytes,
        output_bytes=output_bytes,
        line=line,
    )


def _values(
    words: list[str],
    line: int,
    complaints: Complaints,
) -> list[int] | None:
    """The numbers after the name. None, and reported, where one is wrong."""
    values: list[int] = []
    for k, word in enumerate(words[1 : len(FIELDS)], 1):
        value = whole_number(word, len(str(_GREATEST)))
        if value is None or not 0 <= value <= _GREATEST:
            message = f"field {k + 1} ({FIELDS[k]}): {_objection(word)}"
            # Behind the earlier fields and a tab; columns count from 1.
            complaints.add(line, len("\t".join(words[:k])) + 2, message)
            return None
        values.append(value)
    return values


def _objection(word: str) -> str:
    """The objection to a word in a number's place."""
    digits = word.removeprefix("-")
    wrong = "beyond what can be meant"
    if not (digits.isascii() and digits.isdigit()):
        wrong = "not a whole number"
    elif digits != word:
        wrong = "negative"
    return f"{quoted_text(word)} is {wrong}"


def _fits(
    job: SwimJob,
    line_of: dict[str, int],
    complaints: Complaints,
) -> bool:
    """True if a job is named once and not submitted before the one above it;
    else reported.
    """
    if job.name in line_of:
        message = f"field 1 (job): {quoted_text(job.name)} stands in line {line_of[job.name]} too"
        complaints.add(job.line, 1, message)
        return False
    field = "field 2 (submit time)"
    column = len(job.name) + 2
    return not complaints.is_early(job.line, column, field, job.submit_s)
