"""The vendored page: as its sources were when it was built, with all licences."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

WEB = Path(__file__).parents[3] / "testbed" / "web"
SOURCE = WEB / "page_source"
STATIC = WEB / "static"
BUILT_WITH = {"esbuild"}
AGAIN = "npm ci && npm run build in testbed/web/page_source"


def sums() -> dict[str, str]:
    listed = {}
    for line in (SOURCE / "SHA256SUMS").read_text("utf-8").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    return listed


def test_files_are_those_that_were_built() -> None:
    for name, digest in sums().items():
        content = (SOURCE / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, (name, AGAIN)


def test_every_file_has_a_checksum() -> None:
    there = {f"../static/{path.name}" for path in STATIC.iterdir()}
    there |= {f"src/{path.name}" for path in (SOURCE / "src").iterdir()}
    assert there <= set(sums())


def test_the_licence_of_every_library_is_there() -> None:
    lock = json.loads((SOURCE / "package-lock.json").read_text("utf-8"))
    locked = {}
    for path, package in lock["packages"].items():
        name = path.removeprefix("node_modules/")
        if path and not package.get("dev"):
            locked[name] = package["version"]
    text = (STATIC / "LICENCES.txt").read_text("utf-8")
    heads = re.findall(r"^(\S+) (\d+\.\d+\.\d+) \((\S+)\)$", text, re.M)
    bundled = {name: version for name, version, _ in heads}
    assert bundled.items() <= locked.items()
    # Asked for by another one, and in no file of the bundle.
    assert locked.keys() - bundled.keys() <= {"internmap"}
    assert {licence for _, _, licence in heads} <= {
        "MIT",
        "ISC",
        "BSD-3-Clause",
    }
    assert text.count("Permission") >= len(heads) - 1


def test_versions_are_exact_and_no_registry_is_named() -> None:
    package = json.loads((SOURCE / "package.json").read_text("utf-8"))
    versions = package["dependencies"] | package["devDependencies"]
    assert all(re.fullmatch(r"[\d.]+", text) for text in versions.values())
    assert set(package["devDependencies"]) == BUILT_WITH
    assert '"resolved"' not in (SOURCE / "package-lock.json").read_text()


def test_the_page_loads_nothing_from_elsewhere() -> None:
    script = (STATIC / "page.js").read_text("utf-8")
    named = set(re.findall(r"https?://[\w.]+", script))
    # Names of XML's vocabularies, which nothing is loaded from.
    assert named <= {"http://www.w3.org"}
    style = (STATIC / "page.css").read_text("utf-8")
    assert "url(" not in style
    assert "@import" not in style
