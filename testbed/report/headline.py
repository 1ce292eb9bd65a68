"""Headline of a run's page: its outcome in a few sentences, and the badges that
they rest on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.audit.history import Audit
from testbed.record.conclusion import Results
from testbed.record.metrics import OUTCOMES, Summary
from testbed.record.running import RunningRun, sentences
from testbed.record.verdicts import Verdict, Verdicts, decisive_verdicts
from testbed.report.labels import capital
from testbed.report.run_sentences import (
    failures_clause,
    kept_clause,
    outcome_clause,
    reservation_bounds,
    stated_bounds,
)
from testbed.units import number_of

Mood = Literal["good", "doubt", "bad", "open"]
IN_PROGRESS = "in progress"
_WORDS: dict[Mood, str] = {
    "good": "good",
    "doubt": "doubtful",
    "bad": "not good",
}
_AUDITED = {
    "lives": "order",
    "links": "capacity",
    "accounts": "sums",
    "estimates": "estimates",
}
"""Checks of the audit that a page names, and their names there."""


@dataclass(frozen=True)
class Badge:
    """One of the results that a reader looks for first.

    ``says``: in its tile; ``news``: in the headline, where the mood is bad or
    doubt.
    """

    label: str
    answer: str
    mood: Mood
    says: str
    news: str = ""


@dataclass(frozen=True)
class Headline:
    """The sentences at the top of a page, and the badges that they rest on."""

    mood: Mood
    sentence: str
    badges: tuple[Badge, ...]

    @property
    def word(self) -> str:
        """The verdict in a word or two, for a table."""
        if self.mood == "open":
            run, expectation = self.badges[:2]
            if run.answer == IN_PROGRESS:
                return IN_PROGRESS
            return expectation.answer
        return _WORDS[self.mood]


def headline(
    results: Results,
    audit: Audit,
    in_progress: RunningRun | None = None,
) -> Headline:
    """The verdict of the whole run, which is that of its worst part; a run in
    progress has none.

    Bad news comes first, then the results.
    """
    summary = results.summary
    if in_progress is not None and is_unfinished(summary, in_progress):
        return _unfinished(in_progress)
    run = _run_badge(summary)
    expectation = _expectation_badge(results)
    fidelity = _fidelity_badge(results)
    checked = _audit_badge(audit)
    texts = [
        run.news,
        fidelity.news,
        expectation.news,
        checked.news,
        outcome_clause(results),
        failures_clause(results.failures),
        _stated_clause(results),
    ]
    if fidelity.mood == "good":
        texts.append(fidelity.says)
    badges = (run, expectation, fidelity, checked)
    mood = _worst(badges, results.verdicts)
    return Headline(mood, _joined(texts), badges)


def _worst(badges: tuple[Badge, ...], verdicts: Verdicts) -> Mood:
    """The worst mood of the badges. Where no job was judged, nothing is good."""
    moods = {badge.mood for badge in badges}
    if "bad" in moods:
        return "bad"
    if "doubt" in moods:
        return "doubt"
    return "good" if verdicts.judged else "open"


def is_unfinished(summary: Summary, in_progress: RunningRun | None) -> bool:
    """True for the policy that a run in progress is at."""
    return in_progress is not None and summary.status == "interrupted"


def _unfinished(run: RunningRun) -> Headline:
    """The headline of a run in progress: its audit and verdicts are to come."""
    first, second, *_ = sentences(run)
    badges = [Badge("Run", IN_PROGRESS, "open", first)]
    for label in ("Expectation", "Fidelity", "Audit"):
        says = "when the run has ended"
        badges.append(Badge(label, "to come", "open", says))
    return Headline("open", _joined([first, second]), tuple(badges))


def _joined(texts: list[str]) -> str:
    return " ".join(f"{capital(text)}." for text in texts if text)


def _stated_clause(results: Results) -> str:
    """The expectations that all judged jobs met, or why none was judged; empty
    where another sentence has the outcome.
    """
    verdicts = results.verdicts
    if verdicts.bad:
        return ""
    if verdicts.judged:
        return kept_clause(results)
    if not stated_bounds(results.expect):
        return "the experiment file states no expectations"
    if verdicts.met:
        return "no job could be judged by what the file expects"
    return ""


def _run_badge(summary: Summary) -> Badge:
    counts = []
    for outcome in OUTCOMES:
        n = getattr(summary, outcome)
        if n:
            counts.append(f"{n:,} {outcome}")
    says = ", ".join(counts) or "no jobs"
    status = summary.status
    if status == "completed":
        return Badge("Run", status, "good", says)
    how = "not completed" if status == "failed" else status
    return Badge("Run", status, "bad", says, news=f"the run was {how}")


def _expectation_badge(results: Results) -> Badge:
    label = "Expectation"
    verdicts = results.verdicts
    judged = number_of(len(verdicts.judged), "job")
    if not verdicts.met:
        decisive = decisive_verdicts(results.expect)
        refused = [row for row in verdicts.bad if row.verdict in decisive]
        says = _not_met(verdicts, refused, judged)
        # What only repeats the fidelity verdict is shown once.
        news = "" if _about_fidelity(verdicts) else says
        return Badge(label, "not met", "bad", says, news=news)
    if verdicts.bad:
        says = f"{_count_bad(verdicts.bad, judged)}, which the file accepts"
        return Badge(label, "accepted", "doubt", says, news=says)
    bounds = stated_bounds(results.expect)
    if verdicts.judged:
        bounds = bounds or reservation_bounds(results.expect)
        says = f"{judged} judged: measured/estimate {bounds}"
        return Badge(label, "met", "good", says)
    if bounds:
        says = "no job has an estimate and a time to compare"
        return Badge(label, "not judged", "open", says)
    says = "the experiment file has no expect block"
    return Badge(label, "no expectations", "open", says)


def _about_fidelity(verdicts: Verdicts) -> bool:
    """True if the run's fidelity is the only complaint."""
    return all(
        text.startswith("fidelity is ") for text in verdicts.complaints
    )


def _not_met(
    verdicts: Verdicts, refused: Sequence[Verdict], judged: str
) -> str:
    """The number of bad jobs that the file does not accept; without any, the
    unmet expectation of the run.
    """
    if refused:
        return _count_bad(refused, judged)
    # Without the numbers behind the colon.
    complaint = verdicts.complaints[0].split(": ")[0].removesuffix(".")
    return f"not as expected: {complaint}"


def _count_bad(bad: Sequence[Verdict], judged: str) -> str:
    kinds = " or ".join(dict.fromkeys(row.verdict for row in bad))
    kinds = kinds.replace("outside", "outside what was expected")
    n_bad = len(bad)
    verb = "was" if n_bad == 1 else "were"
    return f"{n_bad:,} of {judged} {verb} {kinds}"


def _fidelity_badge(results: Results) -> Badge:
    label = "Fidelity"
    fidelity = results.summary.fidelity
    level = fidelity.verdict
    if level is None:
        says = "no network was emulated: times are the model's"
        return Badge(label, "simulated", "open", says)
    if level == "ok":
        says = "the machine kept up with the emulation"
        return Badge(label, "ok", "good", says)
    reason = "no reason given"
    if fidelity.reasons:
        # The page's section on fidelity has all reasons in full.
        reason = fidelity.reasons[0].split("; ")[0]
    refused = ""
    if not results.verdicts.met and _about_fidelity(results.verdicts):
        refused = ", which the file does not accept"
    news = f"the emulation is {level}{refused}: {reason}"
    if level == "suspect":
        says = "the machine may have changed the times: see below"
        return Badge(label, level, "doubt", says, news=news)
    says = "the machine did not keep up, do not trust the times: see below"
    return Badge(label, level, "bad", says, news=news)


def _audit_badge(audit: Audit) -> Badge:
    failed = [row.name for row in audit.results if row.status == "failed"]
    passed = [row.name for row in audit.results if row.status == "passed"]
    if failed:
        names = ", ".join(failed)
        news = f"the audit found violations ({names})"
        says = f"violated: {names}"
        return Badge("Audit", "failed", "bad", says, news=news)
    kinds = [kind for name, kind in _AUDITED.items() if name in passed]
    says = f"{number_of(len(passed), 'check')} on every event passed"
    if kinds:
        says += f": {', '.join(kinds)} and others"
    return Badge("Audit", "passed", "good", says)
