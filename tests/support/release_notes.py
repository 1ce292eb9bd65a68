"""Notes of one version, as CHANGELOG.md has them.

python -m tests.support.release_notes VERSION     (or "unreleased")
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
HEADING = re.compile(r"^## \[(.+?)\].*\n", re.MULTILINE)


class NoSuchVersion(ValueError):
    """CHANGELOG.md has no section of that version, or nothing in it."""


def notes(changelog: str, version: str) -> str:
    """Text below a version's heading, up to the next version's."""
    parts = HEADING.split(changelog)
    sections = {
        name.lower(): text.strip()
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    section = sections.get(version.lower().removeprefix("v"))
    if section is None:
        raise NoSuchVersion(
            f"CHANGELOG.md has no version {version}: it has {', '.join(sections)}"
        )
    if not section:
        raise NoSuchVersion(
            f"CHANGELOG.md says nothing of version {version}"
        )
    return section


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.release_notes"
    )
    parser.add_argument("version")
    try:
        print(
            notes(CHANGELOG.read_text("utf-8"), parser.parse_args().version)
        )
    except NoSuchVersion as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
