"""Job profiles in files: bandwidth options with running times (docs/decisions/0430).

    application: sort                 # a label, optional
    options:
      - {bandwidth: 100 Mbit/s, time: 42 s}
      - {bandwidth: 200 Mbit/s, time: 30 s}

The last option is at the no-elongation threshold. ``testbed profile`` writes such a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any

from pydantic import Field

from jobs.job_profile import STEEPEST, Profile, linear_profile, objections
from testbed.errors import BadInput
from testbed.spec.document import Document, read_document, read_text
from testbed.spec.files import find_file
from testbed.spec.problems import Path
from testbed.spec.quantities import Name, PositiveBandwidth, PositiveDuration, SpecModel
from testbed.spec.reading import read_model
from testbed.units import format_bandwidth, format_duration


class ProfileOption(SpecModel):
    """One option."""

    bandwidth: PositiveBandwidth = Field(description="per VM, as 200 Mbit/s")
    time: PositiveDuration = Field(description="the job's running time at it, as 30 s")


class ProfileFile(SpecModel):
    """What a profile file holds."""

    application: Name | None = Field(None, description="whose profile it is, a label")
    options: Annotated[list[ProfileOption], Field(min_length=1, max_length=1000)] = Field(
        description="bandwidths rising, times falling; the last is the no-elongation threshold"
    )


def read_profile(path: FilePath) -> tuple[Profile | None, Document]:
    """The profile in a file, or None and all that is wrong in its document's problems.

    Raises BadInput where the file cannot be read at all.
    """
    document = read_document(read_text(path), str(path))
    section = read_model(ProfileFile, document, ())
    if section is None:
        return None, document
    options = tuple((one.bandwidth, one.time) for one in section.options)
    for at, message in objections(options):
        document.report(("options", at), message)
    return (None if document.problems else Profile(options)), document


def profile_text(profile: Profile, application: str | None = None) -> str:
    """A profile as the text of a file that :func:`read_profile` reads."""
    lines = [] if application is None else [f"application: {application}"]
    lines.append("options:")
    lines += [
        f"  - {{bandwidth: {format_bandwidth(bps)}, time: {format_duration(took_s)}}}"
        for bps, took_s in profile.options
    ]
    return "\n".join(lines) + "\n"


class Profiles:
    """The profiles that the jobs of a file have; every file is read, and complained of, once."""

    def __init__(self, beside: FilePath) -> None:
        self._beside = beside
        self._read: dict[str, Profile | None] = {}

    def check(self, document: Document, path: Path, known: Mapping[str, Any]) -> None:
        """Report what is wrong with an entry's ``profile`` and ``speedup``."""
        name, speedup = known.get("profile"), known.get("speedup")
        if name is not None and speedup is not None:
            document.report((*path, "speedup"), "the profile says it: remove one of them")
        for key, value in (("profile", name), ("speedup", speedup)):
            kind = known.get("kind")
            curved = kind == "demand" or known.get("demand") is not None
            if value is not None and (kind == "compute" or curved):
                document.report((*path, key), "belongs to jobs of kind transfer", at_key=True)
        if speedup is not None and not 0 <= speedup < STEEPEST:
            message = f"must be at least 0 and below {STEEPEST}, where a time would be 0"
            document.report((*path, "speedup"), message)
        if name is not None and name not in self._read:
            self._read[name] = self._load(document, (*path, "profile"), name)

    def of(self, known: Mapping[str, Any]) -> Profile | None:
        """A sound entry's profile: from its file, from the published model, or none."""
        if known["profile"] is not None:
            return self._read[known["profile"]]
        if known["speedup"] is None:
            return None
        return linear_profile(known["bandwidth"], known["duration"], known["speedup"])

    def _load(self, document: Document, path: Path, name: str) -> Profile | None:
        found = find_file(name, self._beside)
        if found is None:
            missing = f"there is no file {name!r} beside this one, along TESTBED_DATA or in the"
            document.report(path, f"{missing} cache")
            return None
        try:
            profile, inside = read_profile(found)
        except BadInput as error:
            document.report(path, error.message)
            return None
        document.problems.extend(inside.problems)
        return profile
