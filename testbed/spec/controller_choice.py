"""A user's choice of a controller for the live network, in place of the testbed's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ControllerChoice:
    """A user's controller: applications to start, or a running controller.

    ``apps`` are absolute paths, and names of modules such as
    ``ryu.app.ofctl_rest``, in order. ``options`` are arguments as
    ``ryu-manager`` takes them. ``confined`` applications have namespaces of
    their own. ``python`` is the path of an interpreter whose packages they may
    import; ``packages`` is a requirements file for a new environment.
    ``remote`` is the address of a running controller, ``tcp:127.0.0.1:6653``.
    """

    apps: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    confined: bool = False
    python: str = ""
    remote: str = ""
    packages: str = ""

    def __str__(self) -> str:
        """Name in sentences: the applications or the address."""
        return self.remote or ", ".join(self.apps)

    @property
    def files(self) -> tuple[Path, ...]:
        """The applications that are files."""
        return tuple(Path(app) for app in self.apps if "/" in app)

    @property
    def resolved(self) -> dict[str, object]:
        """The choice as a mapping for JSON."""
        if self.remote:
            return {"remote": self.remote}
        settings = {
            "options": list(self.options),
            "python": self.python,
            "packages": self.packages,
            "confined": self.confined,
        }
        chosen = {key: value for key, value in settings.items() if value}
        return {"app": str(self), **chosen}
