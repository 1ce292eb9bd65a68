"""Choice of a controller for the live network that is not the testbed's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ControllerChoice:
    """A person's applications in place of our controller.

    ``apps`` are absolute paths, and names of modules such as
    ``ryu.app.ofctl_rest``, in order. ``options`` are arguments as
    ``ryu-manager`` takes them. ``confined``: in namespaces of their own.
    """

    apps: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    confined: bool = False

    def __str__(self) -> str:
        """Name in sentences: the applications, as they are written."""
        return ", ".join(self.apps)

    @property
    def files(self) -> tuple[Path, ...]:
        """Those applications that are files."""
        return tuple(Path(app) for app in self.apps if "/" in app)

    @property
    def resolved(self) -> dict[str, object]:
        """For JSON."""
        found: dict[str, object] = {"app": str(self)}
        if self.options:
            found["options"] = list(self.options)
        if self.confined:
            found["confined"] = True
        return found
