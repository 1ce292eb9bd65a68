"""A trace that a ``workload`` section names: found, or reported with all that is wrong with it."""

from __future__ import annotations

from pathlib import Path as FilePath

from jobs.workload.known import published
from jobs.workload.lines import PROBLEM_LIMIT, TraceErrors
from testbed.spec.document import Document
from testbed.spec.files import find_file
from testbed.spec.problems import Path, Place, Problem


def find_trace(document: Document, path: Path, name: str, beside: FilePath) -> FilePath | None:
    """The file of that name; where there is none, the document says so, and its origin if known."""
    found = find_file(name, beside)
    if found is None:
        trace = published(name)
        origin = f"; its origin: {trace.origin}" if trace is not None else ""
        missing = f"there is no file {name!r} beside this one, along TESTBED_DATA or in the cache"
        document.report(path, f"{missing}{origin}")
    return found


def report_trace(
    document: Document, path: Path, found: FilePath, error: Exception, *, lenient: bool
) -> None:
    """What kept a trace from being read: lines with their own places, or the file as a whole."""
    if isinstance(error, TraceErrors):
        document.problems.extend(
            Problem(Place(str(found), p.line, p.column), "", p.message) for p in error.problems
        )
        shown = f", the first {PROBLEM_LIMIT} are named" if error.found > PROBLEM_LIMIT else ""
        # Where the file itself is cut off, empty or of another form there is little else to read.
        offered = error.lines_alone and not lenient
        mend = "; lenient: true (or --lenient) leaves them out" if offered else ""
        what = "1 line" if error.found == 1 else f"{error.found:,} lines"
        if error.found == 1 and not error.lines_alone:
            what = "the trace"
        document.report(path, f"{what} cannot be read{shown}{mend}")
    else:
        said = error.strerror if isinstance(error, OSError) else str(error)
        document.report(path, f"{str(found)!r} cannot be read: {said}")
