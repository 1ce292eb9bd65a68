"""The page of two sweeps, and sweeps' pictures as files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from testbed.errors import BadInput
from testbed.record.stored_json import regular_bytes
from testbed.report.comparison_page import (
    SIDES,
    ComparedPair,
    PageTable,
    RunFigure,
)
from testbed.report.page import rendered
from testbed.report.picture_files import picture_folder
from testbed.sweeps.sweep_comparison import SweepComparison
from testbed.sweeps.sweep_tables import TABLE_CSV

PICTURE = "sweep.svg"
PICTURE_FILES = (PICTURE, "sweep.png", TABLE_CSV)


def sweeps_page(
    comparison: SweepComparison, folders: Sequence[Path]
) -> str:
    """The page of two sweeps with their pictures, as HTML."""
    titles = [
        f"{side}: {name}"
        for side, name in zip(SIDES, comparison.names, strict=True)
    ]
    pair = ComparedPair(
        names=comparison.names,
        mood="open",
        headline=[
            f"Means of two sweeps: {'; '.join(titles)}.",
            *comparison.outcomes(),
        ],
        details=comparison.sentences(),
        named=[],
        figures=list(_figures(comparison.names, titles, folders)),
        tables=[_means_table(comparison)],
        drawn="The means of both sweeps",
    )
    keys = " and ".join(comparison.keys)
    return rendered(
        "comparison",
        title="Two sweeps compared",
        sub=f"A comparison of two sweeps over {keys}",
        sections=[pair],
    )


def _figures(
    names: Sequence[str], titles: Sequence[str], folders: Sequence[Path]
) -> Iterator[RunFigure]:
    """The picture of each sweep; a sweep without a result has none."""
    for name, title, folder in zip(names, titles, folders, strict=True):
        picture = _content(folder / PICTURE)
        if picture is not None:
            alt = f"Picture of {name}"
            yield RunFigure(title, alt, _image(picture), "As on its page.")


def _means_table(comparison: SweepComparison) -> PageTable:
    return PageTable(
        "Mean ± half of the 95 % confidence interval over the seeds; apart: the"
        " two intervals do not overlap",
        (
            *comparison.keys,
            "metric",
            *SIDES,
            "difference",
            "key in table.csv",
        ),
        [pair.page_cells() for pair in comparison.pairs],
    )


def copy_pictures(folders: Sequence[Path], to: Path) -> list[Path]:
    """Copies the pictures of sweeps and their tables into a folder, which is
    made. Returns the copies.

    Of two sweeps the names begin with ``first-`` and ``second-``. A sweep
    without a result has no picture. Raises BadInput where the folder cannot be
    made, or a file cannot be read.
    """
    target = picture_folder(to)
    files = []
    for number, folder in enumerate(folders):
        prefix = f"{SIDES[number]}-" if len(folders) > 1 else ""
        for name in PICTURE_FILES:
            content = _content(folder / name)
            if content is not None:
                files.append(target.write_bytes(prefix + name, content))
    return files


def _content(path: Path) -> bytes | None:
    """A file's content; None where there is none. Raises BadInput."""
    try:
        return regular_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error


def _image(picture: bytes) -> Markup:
    # Scripts in a foreign file do not run where it is an image.
    source = f"data:image/svg+xml;base64,{b64encode(picture).decode()}"
    return Markup('<img alt="" src="{}">').format(source)
