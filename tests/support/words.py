"""Retired words of the project, and a search for them over code, documentation and tests.

``python -m tests.support.words [PATH…]`` prints each finding as ``file:line: word -> use``, and
the number of findings per folder. Exit code 1 if there is any. ``tests/unit/test_words.py`` demands
that there is none in the whole project.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = (
    ".py",
    ".md",
    ".yaml",
    ".yml",
    ".toml",
    ".sh",
    ".html",
    ".j2",
    ".css",
    ".txt",
)
NAMED = (
    "provision.sh",
    "Vagrantfile",
    "Makefile",
    "tests/vm/run",
    "tests/vm/chroot",
)
SKIPPED = re.compile(
    r"(^|/)vendor(ed)?/"  # other people's text
    r"|^tests/unit/spec/bad/"  # messages that are compared byte for byte
    r"|^requirements/"
    r"|^LICENSE|^docs/decisions/\."
    r"|^tests/support/words\.py$|^tests/unit/test_words\.py$|^\.git"
)

EXCEPTIONS = {
    r"kind:? ?[\"']?ladder|[\"'`]ladder[\"'`]": "a value of `workload.kind` in experiment files",
    r"a ladder leaves a policy|needs ladder\b": "messages that name this value",
    r"[\"']rungs[\"']|rungs: Annotated": "a key of profile.json",
    r"coupling: \w+|coupling(?=[:=.`'\"\]]| =)": "a key of policies in experiment files",
    r"[\"'`]lockstep[\"'`]": "a value of that key",
    r"[\"']strata[\"']": "the name of a random stream, which decides on its numbers",
    r"tests/vm/guest": "a file",
    r"\bguest(?=[\"']?: 8000)": "a key of Vagrant's for forwarded ports",
}
"""Spans that may hold a retired word, each with its reason."""
KEPT = re.compile("|".join(EXCEPTIONS))

KEPT_NAMES = {
    ("testbed/record/bandwidth_sweep.py", "rungs"): "a key of profile.json",
    ("testbed/record/verdicts.py", "met"): "a key of summary.json",
    (
        "testbed/spec/workload_section.py",
        "told",
    ): "a key of experiment files",
}
"""Names that may be retired words, by module, each with its reason."""


@dataclass(frozen=True, slots=True)
class Retired:
    """A word that is not used any more, and the one in its place.

    ``text`` is looked for everywhere, in prose and in code, from a word's edge on; ``names`` are
    compared with the parts of names that Python code defines (``told_before`` has the parts
    ``told`` and ``before``); ``whole`` with whole names. ``under`` limits the rule to paths that
    match.
    """

    use: str
    text: str = ""
    names: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    under: str = ""

    def applies(self, path: str) -> bool:
        return not self.under or re.search(self.under, path) is not None


def _retired(
    use: str,
    text: str = "",
    names: str = "",
    whole: str = "",
    under: str = "",
) -> Retired:
    return Retired(
        use, text, frozenset(names.split()), frozenset(whole.split()), under
    )


_THE = (
    r"(?:the|a|this|that|other|each|every|one|both|our|its|another|first|second|third|which|any|"
    r"same|printed|'s)"
)
_PRODUCT = r"^(?!tests/)"
_EVALUATION = r"^reproductions/|^tests/unit/reproduc|^docs/papers/"

RULES = (
    _retired("namespaces per server", r"berths?\b", names="berth berths"),
    _retired(
        "raise priority; expedited RCU",
        r"hast(?:e|ens?|ened)\b",
        names="haste hasten",
    ),
    _retired("tier reservations", r"the books\b", names="books"),
    _retired("slot counters", r"(?:OpenEnded|OneSlotEach)\b"),
    _retired("backend", r"worlds?\b", names="world worlds"),
    _retired(
        "backend trace, TracingBackend, ReplayBackend",
        whole="Recorded Replayed answers Answers",
    ),
    _retired(
        "recorded, notified; last wait reason; observed",
        names="told said",
        whole="met",
        under=_PRODUCT,
    ),
    _retired(
        "preflight load test",
        r"rehears\w+",
        names="rehearse rehearsal rehearsed",
    ),
    _retired(
        "bandwidth sweep, point",
        r"(?:ladders?|rungs?)\b",
        names="ladder ladders rung rungs",
    ),
    _retired("plot style, link timelines", names="ink strips"),
    _retired(
        "recompute rates",
        r"settl(?:es?|ed|ing)\b",
        names="settle settles settled settling",
        under=r"/sim/",
    ),
    _retired(
        "flow-dependency model",
        r"couplings?\b",
        whole="Coupling COUPLINGS",
    ),
    _retired("coupled flows", r"(?:in )?lockstep\b"),
    _retired("synthetic, generated", whole="drawn", under=r"/spec/|^jobs/"),
    _retired("distributions", r"laws?\b", names="law laws"),
    _retired(
        "stratified sampling", r"strat(?:a|um)\b", names="strata stratum"
    ),
    _retired("loaded workload", r"sourced\b", names="sourced"),
    _retired("topology context", names="site", under=r"^testbed/|^jobs/"),
    _retired("load context", r"circumstances\b", names="circumstances"),
    _retired("scripted test policy", r"puppets?\b", names="puppet puppets"),
    _retired("SCHED_IDLE; is preempted", r"g(?:ives?|ave|iving) way\b"),
    _retired("default class", r"unclaimed\b", names="unclaimed"),
    _retired("allow borrowing", r"open(?:s|ed|ing)? links?\b"),
    _retired(
        "cap-limited",
        r"held back\b|holds back\b",
        names="steady",
        under=r"/emu/|/plan/",
    ),
    _retired("completion window", r"scale\.instant\b"),
    _retired("fidelity", r"validity\b", names="validity"),
    _retired("time tolerance", r"together_s\b|TOGETHER_S\b"),
    _retired(
        "cleanup journal",
        r"[Ll]edgers?\b",
        names="ledger",
        under=r"^testbed/backends/emu/|^tests/(emu|netns)/",
    ),
    _retired("ownership tag, cleanup journal", r"listed and marked\b"),
    _retired("foreground", r"in front\b(?! of\b)", names="front"),
    _retired(
        "background", names="behind", under=r"tiers|cmcbf|interference"
    ),
    _retired(
        "resumes, continues",
        r"go(?:es|ing)? on\b(?! (?:\w+ )?(?:nodes?|servers?|its?|the|different))|went on\b",
    ),
    _retired(
        "hint; repair", r"mend(?:s|ed|ing)?\b", names="mend mends mended"
    ),
    _retired("disk reserve", r"ballast\b", names="ballast"),
    _retired(
        "bottom-up pass", r"climb(?:s|ed|ing)?\b", names="climb climbs"
    ),
    _retired("uneven", r"ragged\b", names="ragged"),
    _retired("uniform depth", r"levelled\b", names="levelled"),
    _retired(
        "best-effort jobs",
        r"guests?\b",
        names="guest guests",
        under=r"^(?!tests/vm/)",
    ),
    _retired(
        "interpretation; validation",
        rf"readings\b|{_THE} reading\b"
        r"(?! (?:(?:of )?(?:an?|the) (?:file|folder|log|trace|run)|it|them|back)\b)",
        names="readings",
    ),
    _retired("unreadable", r"poisoned\b", names="poisoned"),
    _retired("job history", r"dossiers?\b", names="dossier"),
    _retired("run configuration", names="cell cells", under=_EVALUATION),
    _retired("figure", r"exhibits?\b", names="exhibit exhibits"),
    _retired("style", names="looks", whole="look Look", under=_EVALUATION),
    _retired("run", r"trials?\b", names="trial trials"),
    _retired(
        "run", names="piece pieces", under=_EVALUATION + r"|/runs/|/cli/"
    ),
    _retired("checkpointed", r"parked\b|parking\b", names="parked"),
    _retired("summed port load", r"crossings\b", names="crossings"),
    _retired("unconnected", whole="apart", under=r"/emu/|/plan/"),
    _retired("more_at_this_time", r"(?:Ended|event|ended)\.more\b"),
    _retired(
        "estimate",
        r"promis(?:es?|ed|ing)\b",
        names="promise promises promised",
    ),
    _retired("sort key, event priority, MPI rank", whole="Rank"),
    _retired(
        "reproduced / not reproduced / inconclusive",
        r"c(?:a|o)mes? out\b|cannot be told\b|(?<=[\"'])did not(?=[\"'])"
        r"|cannot tell\b(?! (?:the|them|an?|one)\b)",
    ),
)


def _at_an_edge(texts: Iterable[str]) -> re.Pattern[str]:
    """Any of ``texts`` where a word begins or ends; nowhere else is looked."""
    return re.compile(rf"\b(?:{'|'.join(texts)})")


TEXTS = tuple(
    (_at_an_edge([rule.text]), rule) for rule in RULES if rule.text
)
# Most files, lines and names are none of any rule's: one look tells.
ANY_TEXT = _at_an_edge(rule.text for rule in RULES if rule.text)
ANY_NAME = frozenset[str]().union(*(rule.names for rule in RULES))
ANY_WHOLE = frozenset[str]().union(*(rule.whole for rule in RULES))
OPENING = re.compile(r"(?:What|Who|Whose|How|Whether)\b")
OPENED_STRING = re.compile(rf"[\"'][\\\s]*{OPENING.pattern}")
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    line: int
    found: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found} -> {self.use}"


def files(paths: Iterable[str] = ()) -> list[str]:
    """Files of the project below ``paths`` (all without), as git lists them, new ones included."""
    asked = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        *paths,
    ]
    listed = subprocess.run(
        asked, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return sorted(
        path
        for path in set(listed)
        if (path.endswith(SUFFIXES) or path in NAMED)
        and not SKIPPED.search(path)
        and (ROOT / path).is_file()
    )


def findings(path: str) -> list[Finding]:
    """Retired words in a file (path relative to the project), by line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    in_file = list(_in_text(path, text)) if ANY_TEXT.search(text) else []
    stem = Path(path).stem
    in_file += (
        _in_name(
            path, 1, stem, "module " if path.endswith(".py") else "file "
        )
        if "/decisions/" not in path
        else []
    )
    if path.endswith(".py") and _may_be_in_code(path, text):
        in_file += _in_code(path, ast.parse(text))
    return sorted(
        set(in_file), key=lambda finding: (finding.line, finding.found)
    )


def _in_text(path: str, text: str, first: int = 1) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), first):
        if not ANY_TEXT.search(line):
            continue
        kept = [
            (match.start(), match.end()) for match in KEPT.finditer(line)
        ]
        for pattern, rule in TEXTS:
            if rule.applies(path):
                for match in pattern.finditer(line):
                    if not any(
                        start < match.end() and match.start() < end
                        for start, end in kept
                    ):
                        yield Finding(path, number, match.group(), rule.use)


@cache
def parts_of(name: str) -> frozenset[str]:
    """A name's words: of ``told_before`` they are ``told`` and ``before``."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return frozenset(snake.lower().replace("-", "_").split("_"))


def _in_name(
    path: str, line: int, name: str, of: str = ""
) -> list[Finding]:
    parts = parts_of(name)
    if name not in ANY_WHOLE and parts.isdisjoint(ANY_NAME):
        return []
    return [
        Finding(path, line, f"{of}{name}", rule.use)
        for rule in RULES
        if (name in rule.whole or parts & rule.names)
        and rule.applies(path)
        and (path, name) not in KEPT_NAMES
    ]


def _may_be_in_code(path: str, text: str) -> bool:
    """False where no word and no string can be a finding: nothing to parse."""
    if OPENED_STRING.search(text):
        return True
    for word in set(WORD.findall(text)):
        if _in_name(path, 1, word):
            return True
        if word.startswith("test_"):
            sentence = word.replace("_", " ")
            if ANY_TEXT.search(sentence):
                return True
    return False


def _in_code(path: str, module: ast.Module) -> Iterator[Finding]:
    """Names that a module defines, and the first lines of its docstrings."""
    for node in ast.walk(module):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.Name(id=name, ctx=ast.Store())
                | ast.arg(arg=name)
            ):
                yield from _in_name(path, node.lineno, name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield from _in_name(path, node.lineno, name)
            case (
                ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name)
            ):
                if name.startswith("test_"):  # a sentence
                    yield from _in_text(
                        path, name.replace("_", " "), node.lineno
                    )
                else:
                    yield from _in_name(path, node.lineno, name)
        if isinstance(
            node,
            ast.Module
            | ast.ClassDef
            | ast.FunctionDef
            | ast.AsyncFunctionDef,
        ):
            first = (ast.get_docstring(node) or "").split("\n")[0]
            if match := OPENING.match(first):
                text = f'docstring "{match.group()} …"'
                yield Finding(
                    path,
                    node.body[0].lineno,
                    text,
                    "a noun phrase or a verb",
                )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.words",
        description="Search for retired words.",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files or folders (default: the whole project)",
    )
    parser.add_argument(
        "--count",
        action="store_true",
        help="only the numbers per folder and per word",
    )
    options = parser.parse_args(arguments)
    all_findings = [
        finding
        for path in files(options.paths)
        for finding in findings(path)
    ]
    if not options.count:
        for finding in all_findings:
            print(finding)
    for title, counted in (
        (
            "folder",
            Counter(
                "/".join(Path(finding.path).parts[:-1][:3]) or "."
                for finding in all_findings
            ),
        ),
        ("instead", Counter(finding.use for finding in all_findings)),
    ):
        print(
            f"\n{title}",
            *(
                f"  {number:5} {name}"
                for name, number in counted.most_common()
            ),
            sep="\n",
        )
    return 1 if all_findings else 0


if __name__ == "__main__":
    sys.exit(main())
