"""A run's results in plain words: the headline, its badges, numbers as people
read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from testbed.audit.history import Audit
from testbed.record.metrics import LIVE, OUTCOMES, Summary
from testbed.record.running import RunningRun, sentences
from testbed.record.verdicts import Verdicts
from testbed.units import (
    human_bandwidth,
    human_duration,
    number_of,
)

Mood = Literal["good", "doubt", "bad", "open"]


@dataclass(frozen=True)
class Badge:
    """One of the answers a reader looks for first."""

    label: str
    answer: str
    mood: Mood
    says: str


@dataclass(frozen=True)
class Headline:
    """The sentence on top, and the answers it rests on."""

    mood: Mood
    sentence: str
    badges: tuple[Badge, ...]


def or_dash(text: Callable[[float], str]) -> Callable[[float | None], str]:
    """Text of a number, a dash for none."""
    return lambda value: "–" if value is None else text(value)


ratio_text = or_dash("{:.4f}".format)
bandwidth_text = or_dash(human_bandwidth)
share_text = or_dash(lambda share: f"{share * 100:.1f} %")
# To the hundredth where a run is short; hours where it is long.
seconds_text = or_dash(
    lambda s: f"{s:.2f} s" if abs(s) < 1000 else human_duration(s)
)


def headline(
    summary: Summary,
    verdicts: Verdicts,
    audit: Audit,
    in_progress: RunningRun | None = None,
) -> Headline:
    """The verdict of the whole run: as good as its worst part; none of a run in
    progress.
    """
    if in_progress is not None and is_unfinished(summary, in_progress):
        return _unfinished(in_progress)
    badges = (
        _run_badge(summary),
        _expectation_badge(verdicts),
        _fidelity_badge(summary),
        _audit_badge(audit),
    )
    bad = [badge for badge in badges if badge.mood == "bad"]
    if bad:
        return Headline("bad", _bad_sentence(bad, verdicts), badges)
    doubts = [badge.says for badge in badges if badge.mood == "doubt"]
    sentence = "The run is complete."
    if not verdicts.judged:
        sentence += " Its experiment file states no expectations."
    elif not verdicts.bad:
        sentence = _good_sentence(summary, verdicts, doubtful=bool(doubts))
    if doubts:
        return Headline("doubt", f"{sentence} {_joined(doubts)}", badges)
    # Without an expectation nothing was shown to be good.
    mood: Mood = "good" if verdicts.judged else "open"
    return Headline(mood, sentence, badges)


def is_unfinished(summary: Summary, in_progress: RunningRun | None) -> bool:
    """True for the policy that a run in progress plays now."""
    return in_progress is not None and summary.status == "interrupted"


def _unfinished(run: RunningRun) -> Headline:
    """The headline of a run in progress: its audit and verdicts are to come."""
    first, *rest = sentences(run)
    badges = [Badge("Run", "in progress", "open", first)]
    for label in ("Expectation", "Fidelity", "Audit"):
        badges.append(
            Badge(label, "to come", "open", "when the run has ended")
        )
    return Headline("open", _joined([first, rest[0]]), tuple(badges))


def _bad_sentence(bad: list[Badge], verdicts: Verdicts) -> str:
    # What only repeats the fidelity verdict is shown once.
    about_fidelity = [
        text.startswith("fidelity is ") for text in verdicts.complaints
    ]
    says = [badge.says for badge in bad]
    if all(about_fidelity):
        others = [
            badge.says for badge in bad if badge.label != "Expectation"
        ]
        says = others or says
    return _joined(says)


def _good_sentence(
    summary: Summary,
    verdicts: Verdicts,
    *,
    doubtful: bool,
) -> str:
    n_judged = len(verdicts.judged)
    jobs = "the one job judged"
    if n_judged != 1:
        jobs = f"all {n_judged:,} jobs judged"
    sentence = f"The estimates held: {jobs} took the expected time."
    if doubtful:
        return sentence
    if summary.backend == LIVE:
        machine = "The machine kept up with the emulation, and the"
    else:
        machine = "The"
    return f"{sentence} {machine} audit found nothing."


def _joined(sentences: list[str]) -> str:
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


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
    return Badge("Run", status, "bad", f"the run was {how}: {says}")


def _expectation_badge(verdicts: Verdicts) -> Badge:
    label = "Expectation"
    judged = number_of(len(verdicts.judged), "job")
    if not verdicts.met:
        return Badge(label, "not met", "bad", _not_met(verdicts, judged))
    if verdicts.bad:
        says = f"{_count_bad(verdicts, judged)}, which the file accepts"
        return Badge(label, "accepted", "doubt", says)
    if not verdicts.judged:
        says = "the experiment file has no expect block"
        return Badge(label, "none stated", "open", says)
    return Badge(label, "met", "good", f"{judged} judged, all within")


def _not_met(verdicts: Verdicts, judged: str) -> str:
    if verdicts.bad:
        return _count_bad(verdicts, judged)
    # An expectation of the whole run: which one, without its figures.
    complaint = verdicts.complaints[0].split(": ")[0]
    return f"not as expected: {complaint}"


def _count_bad(verdicts: Verdicts, judged: str) -> str:
    kinds = " or ".join(dict.fromkeys(row.verdict for row in verdicts.bad))
    kinds = kinds.replace("outside", "outside what was expected")
    return f"{len(verdicts.bad):,} of {judged} {kinds}"


def _fidelity_badge(summary: Summary) -> Badge:
    label = "Fidelity"
    level = summary.fidelity.verdict
    if level is None:
        says = "no real traffic: nothing to distort"
        return Badge(label, "simulated", "open", says)
    if level == "ok":
        says = "the machine kept up with the emulation"
        return Badge(label, "ok", "good", says)
    reason = "no reason given"
    if summary.fidelity.reasons:
        reason = summary.fidelity.reasons[0]
    mood: Mood = "doubt" if level == "suspect" else "bad"
    return Badge(label, level, mood, f"the emulation is {level}: {reason}")


def _audit_badge(audit: Audit) -> Badge:
    failed = []
    n_passed = 0
    for result in audit.results:
        if result.status == "failed":
            failed.append(result.name)
        n_passed += result.status == "passed"
    if failed:
        says = f"the audit found violations ({', '.join(failed)})"
        return Badge("Audit", "failed", "bad", says)
    says = f"{number_of(n_passed, 'check')} on every event passed"
    return Badge("Audit", "passed", "good", says)
