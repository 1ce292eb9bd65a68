"""The first page of the papers' results: a paragraph a paper, their main
results, and the sentences that were judged on the live network.

All of it is made from stored verdicts; nothing in it is written by hand.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

from reproductions.catalogue import PAPERS, paper_of
from reproductions.claim_checks import JudgedClaim, Status, Verdict, rule_of
from reproductions.figure_tables import MARKS
from reproductions.published_figure import Figure
from reproductions.stored_results import Stored, StoredResult
from testbed.units import number_of

NAMES = {
    "dcloud": "DCloud",
    "jsa": "JSA",
    "adaba": "AdaBa and BgMBF",
    "cmbf": "CMBF",
    "mbfcbs": "MBFCBS",
}


@dataclass(frozen=True)
class Outcome:
    """A verdict in words. With ``states_number`` it is that of rules that state
    a number, or of directions; None stands for both.

    ``of_several`` and ``of_single`` are the ends of sentences.
    """

    heading: str
    of_several: str
    of_single: str
    verdict: Verdict
    states_number: bool | None = None

    def has(self, judged: JudgedClaim) -> bool:
        """True for sentences of the paper with this outcome."""
        if not of_the_paper(judged) or judged.verdict != self.verdict:
            return False
        if self.states_number is None:
            return True
        return judged.claim.states_number == self.states_number

    def counted(self, count: int) -> str:
        """``2 do not hold``."""
        words = self.of_single if count == 1 else self.of_several
        return f"{count} {words}"


OUTCOMES = (
    Outcome(
        heading="Hold with their numbers",
        of_several="hold with their numbers",
        of_single="holds with its number",
        verdict="reproduced",
        states_number=True,
    ),
    Outcome(
        heading="Hold as a direction",
        of_several="hold as a direction only",
        of_single="holds as a direction only",
        verdict="reproduced",
        states_number=False,
    ),
    Outcome(
        heading="Do not hold",
        of_several="do not hold",
        of_single="does not hold",
        verdict="not reproduced",
    ),
    Outcome(
        heading="Cannot be decided",
        of_several="cannot be decided",
        of_single="cannot be decided",
        verdict="inconclusive",
    ),
)
# Characters of a rule in a table of the first page.
LONGEST_RULE = 140


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper with its verdict, of a figure's stored result."""

    name: str
    paper: str
    result: StoredResult
    judged: JudgedClaim

    @property
    def link(self) -> str:
        return f"[{self.name}]({self.paper}.md#{self.name})"

    @property
    def start_of_row(self) -> str:
        claim = self.judged.claim
        # Sentences are the papers', and may have a bar in them.
        texts = (
            NAMES[self.paper],
            f"{claim.text} ({self.link})",
            claim.published,
        )
        return " | ".join(map(in_table, texts))

    @property
    def fate(self) -> str:
        """The verdict and remarks on it, as two texts of a row."""
        if self.result.old:
            return "| old, not counted"
        claim = self.judged.claim
        remarks = []
        if self.judged.verdict == "reproduced" and not claim.states_number:
            remarks.append("as a direction")
        if claim.status == "fitted":
            remarks.append("fitted")
        return f"{MARKS[self.judged.verdict]} | {', '.join(remarks)}"

    @property
    def beside(self) -> str:
        """The verdict of the rule that stands beside, and that rule."""
        beside = self.judged.beside
        if beside is None or self.result.old:
            return ""
        rule = shortened(rule_of(beside.claim.checks))
        return f"{MARKS[beside.verdict]}: {rule}"

    @property
    def holds_beside(self) -> bool:
        """True where it holds by the rule beside its own, and not by its own."""
        beside = self.judged.beside
        if beside is None or self.judged.verdict == "reproduced":
            return False
        return beside.verdict == "reproduced"


def of_the_paper(judged: JudgedClaim) -> bool:
    """True for a sentence of the paper, false for an own check."""
    return judged.claim.status != "own check"


def in_table(text: str) -> str:
    """A text without the bar that would end a column of a table."""
    return text.replace("|", "∣")


def shortened(rule: str) -> str:
    """A rule's beginning, which names its quantity."""
    short = textwrap.shorten(rule, LONGEST_RULE, placeholder=" …")
    return in_table(short)


def results_of(every: Stored, paper: str) -> Stored:
    """A paper's stored results."""
    of_paper = {}
    for name, result in every.items():
        if paper_of(result.done.figure) == paper:
            of_paper[name] = result
    return of_paper


def sentences(every: Stored) -> Iterator[Sentence]:
    """The papers' sentences in the order of the papers; no own checks."""
    for paper in PAPERS:
        for name, result in results_of(every, paper).items():
            for judged in filter(of_the_paper, result.done.judged):
                yield Sentence(name, paper, result, judged)


def statuses_by_outcome(
    every: Stored, paper: str
) -> dict[str, list[Status]]:
    """The statuses of a paper's sentences by the heading of their outcome;
    without old results.
    """
    statuses: dict[str, list[Status]] = {}
    for outcome in OUTCOMES:
        statuses[outcome.heading] = []
    for result in results_of(every, paper).values():
        if result.old:
            continue
        for judged in result.done.judged:
            for outcome in OUTCOMES:
                if outcome.has(judged):
                    statuses[outcome.heading].append(judged.claim.status)
    return statuses


# -- a paragraph a paper -------------------------------------------------------


def paragraphs(every: Stored) -> str:
    """A short text a paper: what holds, what does not, what is open."""
    texts = []
    # They come in the order of the papers.
    by_paper = groupby(sentences(every), key=attrgetter("paper"))
    for paper, judged in by_paper:
        texts.append(f"**{NAMES[paper]}.** {paragraph(judged)}")
    return "\n\n".join(texts)


def paragraph(judged: Iterable[Sentence]) -> str:
    """A paper's sentences with their numbers, and its main results by name."""
    current = []
    main = []
    old = 0
    for sentence in judged:
        if sentence.result.old:
            old += 1
            continue
        current.append(sentence)
        if sentence.judged.claim.headline:
            main.append(sentence)
    count = number_of(len(current), "sentence")
    numbers = [
        f"Of {count} {listed(_counts(current))}.",
        _known_before(current, old=old),
    ]
    parts = [" ".join(filter(None, numbers)), _main_results(main)]
    return "\n\n".join(filter(None, parts))


def _counts(current: Iterable[Sentence]) -> list[str]:
    """``2 do not hold`` for every outcome, also where none has it."""
    judged = [sentence.judged for sentence in current]
    counts = []
    for outcome in OUTCOMES:
        count = sum(map(outcome.has, judged))
        counts.append(outcome.counted(count))
    return counts


def _main_results(main: list[Sentence]) -> str:
    """A list of the main results by their outcomes; empty without any."""
    if not main:
        return ""
    results = number_of(len(main), "main result")
    lines = [f"Of its {results}:", ""]
    for outcome in OUTCOMES:
        those = [
            sentence for sentence in main if outcome.has(sentence.judged)
        ]
        if those:
            lines.append(
                f"- {outcome.counted(len(those))}: {quoted(those)}"
            )
    beside = _beside(main)
    if beside:
        lines.extend(["", beside])
    return "\n".join(lines)


def _beside(main: Iterable[Sentence]) -> str:
    """Main results that hold by the rule that stands beside theirs."""
    those = list(filter(attrgetter("holds_beside"), main))
    if not those:
        return ""
    verb = "holds" if len(those) == 1 else "hold"
    return (
        f"By the rule that stands beside, and is not counted, "
        f"{quoted(those)} {verb}."
    )


def _known_before(current: list[Sentence], *, old: int) -> str:
    """Sentences whose verdict says less: known before, fitted, or old."""
    known = 0
    fitted = 0
    for sentence in current:
        known += not sentence.result.in_advance
        fitted += sentence.judged.claim.status == "fitted"
    parts = []
    if known:
        verb = "was" if known == 1 else "were"
        parts.append(
            f"{known} {verb} judged on values known before their rules"
        )
    if fitted:
        parts.append(f"{fitted} took part in choosing an interpretation")
    if old:
        parts.append(f"of old results, which do not count, are {old} more")
    if not parts:
        return ""
    return f"Of the {len(current)}, {listed(parts)}."


def quoted(those: Iterable[Sentence]) -> str:
    """Sentences with their figures; the same one of several figures once."""
    # Several figures may judge one sentence.
    links: dict[str, list[str]] = {}
    for sentence in those:
        text = sentence.judged.claim.text
        links.setdefault(text, []).append(sentence.link)
    quotations = []
    for text, places in links.items():
        quotations.append(f"“{text}” ({', '.join(places)})")
    return listed(quotations)


def listed(texts: list[str]) -> str:
    """``a, b and c``."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


# -- tables --------------------------------------------------------------------


def main_results(every: Stored) -> str:
    """The main results of the papers with what became of them."""
    lines = _header("beside, not counted")
    for sentence in sentences(every):
        if sentence.judged.claim.headline:
            lines.append(
                f"| {sentence.start_of_row} | {sentence.fate} "
                f"| {sentence.beside} |"
            )
    return "\n".join(lines)


def _header(*columns: str) -> list[str]:
    """Two lines above sentences and their fates, with more columns."""
    names = ["paper", "its sentence", "published", "verdict", "", *columns]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]


def live_sentences(every: Stored) -> str:
    """The sentences that were judged on the live network, and how; the live
    figures that judge none.
    """
    lines = _header("live runs", "standing")
    judging = set()
    for sentence in sentences(every):
        result = sentence.result
        if result.live:
            judging.add(sentence.name)
            texts = (
                sentence.start_of_row,
                sentence.fate,
                live_runs(result.record),
                standing_of(result),
            )
            lines.append(f"| {' | '.join(texts)} |")
    table = "\n".join(lines)
    # A figure whose claims are all own checks has no row above.
    silent = []
    for name, result in every.items():
        if result.live and name not in judging:
            silent.append(name)
    if not silent:
        return table
    return f"{table}\n\nOwn checks alone: {listed(silent)}."


def live_runs(record: Mapping[str, Any]) -> str:
    """The number of a live result's runs by their fidelity."""
    runs = record["runs"]
    seeds = number_of(record["seeds"], "seed")
    return (
        f"{seeds}, {number_of(len(runs), 'run')}: {fidelity_counts(runs)}"
    )


def fidelity_counts(runs: Iterable[Mapping[str, Any]]) -> str:
    """Live runs by their verdicts, as ``19 ok, 1 suspect``."""
    verdicts = Counter[str](run["verdict"] for run in runs)
    counts = [f"{count} {name}" for name, count in verdicts.items()]
    return ", ".join(counts)


def standing_of(result: StoredResult) -> str:
    """A result's standing, in a table's row."""
    if result.old:
        return f"old: {result.old}"
    if result.in_advance:
        return "rules first"
    return "before its rules"


# -- commits and times ---------------------------------------------------------


def commits(every: Stored) -> str:
    """The number of commits of the results that count, and the one that most of
    them are of with all their runs.
    """
    counted = [result for result in every.values() if not result.old]
    wholly: Counter[str] = Counter()
    known: set[str] = set()
    for result in counted:
        named = {result.record["code"]["commit"], *result.runs_at}
        # A run without a commit was at one of these or another.
        commits_named = named - {None}
        known |= commits_named
        if len(named) == 1:
            wholly.update(commits_named)
    text = (
        f"Results that count: {len(counted):,}, of "
        f"{number_of(len(known), 'commit')}"
    )
    for commit, number in wholly.most_common(1):
        text = f"{text}; {number:,} are wholly of `{commit[:10]}`"
    return f"{text}."


def times(every: Stored) -> str:
    """The time that the stored results took, and the commands that take all of
    them again, with the seeds that their rules need.
    """
    # A shared run is computed once; a live one was measured by its last
    # try.
    simulated = _unshared(every)
    live = [result for result in every.values() if result.live]
    processor = _hours(simulated, _stored_s)
    wall = _hours(live, _stored_s)
    return (
        f"The stored results took {processor} processor hours (simulated; a "
        "figure whose runs are all another's adds nothing) and "
        f"{wall} hours on the live network (each run by its last try). By these "
        "times, with the seeds that the rules need, and without figures "
        "that have no result:\n\n"
        "```console\n"
        f"$ testbed reproduce --all              "
        f"# {_hours(simulated, _needed_s)} processor hours, "
        "at the published sizes\n"
        f"$ sudo testbed reproduce --all --live  "
        f"# {_hours(live, _needed_s)} hours of wall time\n"
        "```"
    )


def _unshared(every: Stored) -> list[StoredResult]:
    """Simulated results without those whose runs are all another's."""
    sizes: list[tuple[set[object], StoredResult]] = []
    for result in every.values():
        figure = result.done.figure
        if isinstance(figure, Figure):
            points = figure.configurations(result.done.seeds, quick=False)
            runs: set[object] = set(chain.from_iterable(points.values()))
            sizes.append((runs, result))
    # The largest first: a figure's runs may all be among those of a larger
    # one.
    sizes.sort(key=lambda pair: len(pair[0]), reverse=True)
    counted: set[object] = set()
    results = []
    for runs, result in sizes:
        if not runs <= counted:
            counted |= runs
            results.append(result)
    return results


def took_s(record: Mapping[str, Any]) -> float:
    """Processor time of simulated runs, wall time of live ones."""
    runs = record.get("runs")
    if runs:
        return float(sum(run["wall_s"] for run in runs))
    return float(record["cpu_s"])


def _stored_s(result: StoredResult) -> float:
    return took_s(result.record)


def _needed_s(result: StoredResult) -> float:
    done = result.done
    return took_s(result.record) * done.figure.seeds / max(done.seeds, 1)


def _hours(
    results: Iterable[StoredResult],
    seconds: Callable[[StoredResult], float],
) -> str:
    return f"{sum(map(seconds, results)) / 3600:.1f}"
