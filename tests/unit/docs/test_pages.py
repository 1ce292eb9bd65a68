"""docs/ is whole: links lead somewhere, pages and records that are named exist, examples load."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from testbed.cli.command_line import VERBS
from testbed.spec.experiment_file import parse_experiment
from tests.unit.workload.traces import skip_without_traces_of

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *DOCS.glob("papers/*.md")]
)
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
RUNS = re.compile(
    r"\.\./\.\./actions/workflows/([\w-]+\.yml)(?:/badge\.svg)?"
)
SECTIONS = ["Question", "Decision", "Evidence", "Consequences"]


@cache
def sources() -> list[Path]:
    """Text files in which a page or record may be named."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    wanted = re.compile(
        r"(\.(py|sh|yaml|md|toml|html|j2)|Vagrantfile|Makefile|tests/vm/\w+)$"
    )
    return [
        ROOT / name
        for name in listed
        if wanted.search(name) and (ROOT / name).is_file()
    ]


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(
        r"^```.*?^```",
        "",
        page.read_text("utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = (
        re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings
    )
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize(
    "page", [*PAGES, *RECORDS, DOCS / "decisions" / "README.md"], ids=str
)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```",
        "",
        page.read_text("utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        if run := RUNS.fullmatch(target):
            assert page == ROOT / "README.md", (
                "only from there it leads to the repository's runs"
            )
            assert (ROOT / ".github" / "workflows" / run[1]).exists(), (
                target
            )
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


WRITTEN = re.compile(r"https?://[^\s<>`\"'|]+")
OURS = re.compile(r"http://(127\.0\.0\.1|localhost|\w+)(:\d+)?(/|$)")
"""Addresses of this machine, or of one that an example names."""
VOCABULARIES = {"http://graphml.graphdrawing.org/xmlns"}
"""Names of formats, which nobody opens."""


def external_links() -> dict[str, set[str]]:
    """Addresses in all pages, each with the pages that have it."""
    links: dict[str, set[str]] = {}
    pages = [*PAGES, *RECORDS, *ROOT.glob("labs/*/page.md")]
    for page in pages:
        for address in WRITTEN.findall(page.read_text("utf-8")):
            # What closes a link or a sentence is none of the address.
            plain = address.rstrip(".,;:!?)]*")
            if not OURS.match(plain) and plain not in VOCABULARIES:
                links.setdefault(plain, set()).add(page.name)
    return links


def test_external_links_are_whole_and_by_https() -> None:
    links = external_links()
    assert links
    for address, pages in links.items():
        parts = urlsplit(address)
        assert parts.scheme == "https", (address, pages)
        assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.netloc), (
            address,
            pages,
        )
        assert not re.search(r"//|\.\.", parts.path), (address, pages)
        assert "utm_" not in parts.query, (address, pages)


def test_an_external_page_has_one_spelling() -> None:
    spellings: dict[str, set[str]] = {}
    for address in external_links():
        plain = address.partition("#")[0].casefold().rstrip("/")
        plain = plain.removeprefix("https://").removeprefix("http://")
        plain = plain.removeprefix("www.").removesuffix("/index.html")
        spellings.setdefault(plain, set()).add(address.partition("#")[0])
    several = [spelt for spelt in spellings.values() if len(spelt) > 1]
    assert not several


def test_pages_that_are_named_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        if path.name not in ("CHANGELOG.md", "test_words.py")
        and path != Path(__file__)
        for name in re.findall(
            r"\bdocs/[\w/-]+\.md\b", path.read_text("utf-8")
        )
        if not (ROOT / name).exists()
    }
    assert not missing, "\n".join(sorted(missing))


def test_records_that_are_named_exist() -> None:
    known = {record.name[:2] for record in RECORDS}
    named = re.compile(r"\bdecisions?(?:/| \(?)(\d+)\b", re.IGNORECASE)
    missing = {
        f"{path.relative_to(ROOT)}: {number}"
        for path in sources()
        if path != Path(__file__)
        for number in named.findall(path.read_text("utf-8"))
        if len(number) == 4 or (len(number) == 2 and number not in known)
    }
    assert not missing, "\n".join(sorted(missing))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_records_have_one_form(record: Path) -> None:
    text = record.read_text("utf-8")
    assert text.startswith(f"# {record.name[:2]}: ")
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == SECTIONS
    assert len(text.splitlines()) <= 50
    assert f"({record.name})" in (
        DOCS / "decisions" / "README.md"
    ).read_text("utf-8")


def test_records_are_numbered_from_one_and_few() -> None:
    assert [record.name[:2] for record in RECORDS] == [
        f"{n + 1:02d}" for n in range(len(RECORDS))
    ]
    assert len(RECORDS) <= 47


EXAMPLES = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    if page.stem
    not in (
        "experiment-files",
        "plug-ins",
        "writing-a-policy",
        "coming-from-mininet",
    )  # have tests of their own
    for number, block in enumerate(
        re.findall(
            r"^```yaml\n(.*?)^```",
            page.read_text("utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    )
]


@pytest.mark.parametrize("block", EXAMPLES)
def test_experiment_files_load(block: str) -> None:
    skip_without_traces_of(block)
    assert parse_experiment(block, Path("doc.yaml")).jobs


def test_commands_that_are_named_exist() -> None:
    known = set(VERBS)
    shown = re.compile(
        r"(?:^\$ (?:sudo )?|`(?:sudo )?)testbed ([a-z]+)", re.MULTILINE
    )
    for page in PAGES:
        named = set(shown.findall(page.read_text("utf-8")))
        assert named <= known, (page.name, named - known)


def test_the_controllers_modules_are_described() -> None:
    table = (
        (DOCS / "controller.md")
        .read_text("utf-8")
        .split("## What it is made of", 1)[1]
    )
    named = set(re.findall(r"`(\w+\.py)`", table))
    assert named == {
        path.name for path in (ROOT / "controller").glob("*.py")
    } - {"__init__.py"}
