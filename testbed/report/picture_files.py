"""Pictures as files: each as SVG and PNG, and its values as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from testbed.owned_files import caller, without_links
from testbed.record.folder import RunFolder
from testbed.record.metrics import cell_of
from testbed.record.reading import (
    in_order_of_list,
    load_run,
    policy_folders,
)
from testbed.record.verdicts import stored_verdicts
from testbed.report.pictures import pictures
from testbed.report.plot_files import on_paper
from testbed.report.policy_distributions import distributions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawable(Protocol):
    """A picture, and its values as rows of a table, headings first."""

    def draw(self) -> Figure: ...

    def rows(self) -> Iterable[Sequence[Any]]: ...


def write_pictures(run: Path, to: Path) -> list[Path]:
    """Writes the pictures of a run's pages into a folder, which is made if it is
    missing; returns the files.

    With several policies, a file's name begins with the policy's. Raises BadInput
    if ``run`` is no run folder or is damaged, or ``to`` cannot be made.
    """
    folder = picture_folder(to)
    paths = policy_folders(run)
    several = paths != [run]
    runs = [load_run(path) for path in in_order_of_list(run, paths)]
    files: list[Path] = []
    for played in runs:
        prefix = f"{played.path.name}-" if several else ""
        for picture in pictures(played, stored_verdicts(played)):
            name = f"{prefix}{picture.kind}"
            files += picture_files(folder, name, picture)
    if several:
        for curves in distributions(runs):
            name = f"distribution-{curves.number + 1}"
            files += picture_files(folder, name, curves)
    return files


def picture_folder(to: Path) -> RunFolder:
    """A folder for pictures, made where there is none. Raises BadInput."""
    folder = RunFolder(without_links(to), caller())
    folder.make("name a folder you may write to with --pictures")
    return folder


def picture_files(
    folder: RunFolder,
    name: str,
    picture: Drawable,
) -> list[Path]:
    """Writes a picture as SVG and PNG, and its values as CSV; returns the files."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\n")
    # Names may be another's, of which a spreadsheet would make formulas.
    for row in picture.rows():
        writer.writerow(map(cell_of, row))
    contents = on_paper(picture.draw())
    contents["csv"] = table.getvalue().encode()
    files = []
    for kind, content in contents.items():
        # Without waiting for the disk: a picture that a power cut takes is
        # drawn again.
        path = folder.write_bytes(f"{name}.{kind}", content, sync=False)
        files.append(path)
    return files
