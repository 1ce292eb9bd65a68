"""A repository for a policy of one's own, from templates: module, tests,
experiments, packaging.
"""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from testbed.errors import BadInput
from testbed.owned_files import caller
from testbed.record.folder import RunFolder
from testbed.schedulers.registry import own_policies

FILES = {
    "{module}.py": "module.py.j2",
    "tests/test_{module}.py": "test_module.py.j2",
    "by-class.yaml": "by-class.yaml.j2",
    "by-name.yaml": "by-name.yaml.j2",
    "pyproject.toml": "pyproject.toml.j2",
    "README.md": "README.md.j2",
    ".gitignore": "gitignore.j2",
    ".github/workflows/test.yml": "test.yml.j2",
}
"""Templates by the file that each becomes."""
MOST_CHARACTERS = 40
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_OURS = (
    "testbed",
    "topologies",
    "jobs",
    "controller",
    "reproductions",
    "bench",
    "labs",
    "tests",
)


@dataclass(frozen=True)
class Repository:
    """A repository that was made, and its files."""

    folder: Path
    files: tuple[Path, ...]


def make(name: str, folder: Path) -> Repository:
    """Writes the repository. Raises BadInput for a bad name, and where the
    folder exists.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    _check(name)
    # exists() follows links, and misses one that leads nowhere.
    if folder.exists() or folder.is_symlink():
        raise BadInput(
            f"{folder} is there already", "name another folder with --out"
        )
    module = _module(name)
    variables = {
        "name": name,
        "module": module,
        "cls": _class(name),
        "version": _version(),
    }
    templates = Environment(
        loader=PackageLoader(
            "testbed.policy_trials", "policy_template_files"
        ),
        undefined=StrictUndefined,
        # jinja takes a template's last line end away otherwise.
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Python and YAML, of a name of letters and hyphens
    )
    written = RunFolder(folder, caller())
    written.make()
    files = [
        written.write_text(
            path.format(module=module),
            templates.get_template(of).render(variables),
        )
        for path, of in FILES.items()
    ]
    return Repository(folder, tuple(files))


def _check(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > MOST_CHARACTERS:
        rule = f"lower-case letters, digits and single hyphens, a letter first, {MOST_CHARACTERS}"
        raise BadInput(
            f"{name!r} is no name for a policy: {rule} characters at most"
        )
    if name in own_policies():
        hint = f"choose another, as my-{name}"
        raise BadInput(f"a policy of the testbed is called {name}", hint)
    # Tests have the repository's folder first on Python's path: its module
    # would stand in place of the other.
    module = _module(name)
    if (
        keyword.iskeyword(module)
        or module in sys.stdlib_module_names
        or module in _OURS
    ):
        hint = f"choose another, as {name}-policy"
        raise BadInput(
            f"a module of Python or of the testbed is called {module}", hint
        )
    if _is_installed(module):
        hint = f"choose another, as {name}-policy"
        raise BadInput(f"an installed package is called {module}", hint)


def _is_installed(module: str) -> bool:
    spec = find_spec(module)
    # Any folder of that name on the path has a spec, but no file.
    return spec is not None and spec.origin is not None


def _module(name: str) -> str:
    return name.replace("-", "_")


def _class(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


def _version() -> str:
    """The version of the testbed that is installed."""
    try:
        return version("hosenet")
    except PackageNotFoundError:
        return "0.1"
