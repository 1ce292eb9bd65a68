"""A run's results in plain words: the headline, its badges, numbers as people read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from testbed.results.audit.history import Audit
from testbed.results.metrics import LIVE, OUTCOMES, Summary
from testbed.results.tables import Verdicts
from testbed.units import human_bandwidth, human_duration

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


def plural(count: int, noun: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def or_dash(text: Callable[[float], str]) -> Callable[[float | None], str]:
    """Text of a number, a dash for none."""
    return lambda value: "–" if value is None else text(value)


ratio_text = or_dash("{:.4f}".format)
bandwidth_text = or_dash(human_bandwidth)
share_text = or_dash(lambda share: f"{share * 100:.1f} %")
# To the hundredth where a run is short; hours where it is long.
seconds_text = or_dash(lambda s: f"{s:.2f} s" if abs(s) < 1000 else human_duration(s))


def headline(summary: Summary, verdicts: Verdicts, audit: Audit) -> Headline:
    """The verdict of the whole run: as good as its worst part."""
    of_run = (_run_badge(summary), _expectation_badge(verdicts), _fidelity_badge(summary))
    badges = (*of_run, _audit_badge(audit))
    bad = [badge for badge in badges if badge.mood == "bad"]
    if bad:
        # What only repeats the fidelity verdict is shown once.
        twice = all(text.startswith("fidelity is ") for text in verdicts.complaints)
        message = [b.says for b in bad if b.label != "Expectation" or not twice]
        return Headline("bad", _joined(message or [b.says for b in bad]), badges)
    doubts = [badge for badge in badges if badge.mood == "doubt"]
    sentence = "The run is complete."
    if not verdicts.judged:
        sentence += " Its experiment file states no expectations."
    elif not verdicts.bad:
        sentence = _good_sentence(summary, verdicts, doubtful=bool(doubts))
    if doubts:
        return Headline("doubt", f"{sentence} {_joined([b.says for b in doubts])}", badges)
    return Headline("good" if verdicts.judged else "open", sentence, badges)


def _good_sentence(summary: Summary, verdicts: Verdicts, *, doubtful: bool) -> str:
    judged = len(verdicts.judged)
    who = "the one job judged" if judged == 1 else f"all {judged:,} jobs judged"
    sentence = f"The estimates held: {who} took the expected time."
    if doubtful:
        return sentence
    machine = (
        "The machine kept up with the emulation, and the" if summary.backend == LIVE else "The"
    )
    return f"{sentence} {machine} audit found nothing."


def _joined(sentences: list[str]) -> str:
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def _run_badge(summary: Summary) -> Badge:
    count = {outcome: getattr(summary, outcome) for outcome in OUTCOMES}
    says = ", ".join(f"{n:,} {outcome}" for outcome, n in count.items() if n) or "no jobs"
    if summary.status != "completed":
        how = "not completed" if summary.status == "failed" else summary.status
        return Badge("Run", summary.status, "bad", f"the run was {how}: {says}")
    return Badge("Run", "completed", "good", says)


def _expectation_badge(verdicts: Verdicts) -> Badge:
    label, judged, bad = "Expectation", plural(len(verdicts.judged), "job"), verdicts.bad
    kinds = " or ".join(dict.fromkeys(row.verdict for row in bad))
    says = f"{len(bad):,} of {judged} {kinds.replace('outside', 'outside what was expected')}"
    if not verdicts.met:
        first = f"not as expected: {verdicts.complaints[0].split(': ')[0]}"
        return Badge(label, "not met", "bad", says if bad else first)
    if bad:
        return Badge(label, "accepted", "doubt", f"{says}, which the file accepts")
    if not verdicts.judged:
        return Badge(label, "none stated", "open", "the experiment file has no expect block")
    return Badge(label, "met", "good", f"{judged} judged, all within")


def _fidelity_badge(summary: Summary) -> Badge:
    label, found = "Fidelity", summary.fidelity
    if found.verdict is None:
        return Badge(label, "simulated", "open", "no real traffic: nothing to distort")
    if found.verdict == "ok":
        return Badge(label, "ok", "good", "the machine kept up with the emulation")
    reason = found.reasons[0] if found.reasons else "no reason given"
    mood: Mood = "doubt" if found.verdict == "suspect" else "bad"
    return Badge(label, found.verdict, mood, f"the emulation is {found.verdict}: {reason}")


def _audit_badge(audit: Audit) -> Badge:
    label = "Audit"
    failed = [result.name for result in audit.results if result.status == "failed"]
    passed = sum(result.status == "passed" for result in audit.results)
    if failed:
        says = f"the audit found violations ({', '.join(failed)})"
        return Badge(label, "failed", "bad", says)
    return Badge(label, "passed", "good", f"{plural(passed, 'check')} on every event passed")
