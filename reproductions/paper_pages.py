"""The papers' pages, ``docs/papers/*.md``: their generated part, made from
stored values, and the counts in the README.

``python -m reproductions.paper_pages [OUT…]``, in a checkout, takes the
full-size results below ``OUT`` in, judges all stored values by the ledger, and
writes the generated part of every page again. The part above it is written by
hand, and has no number of a result in it; so are the causes in the ledger.
"""

from __future__ import annotations

import math
import os
import re
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import filterfalse
from pathlib import Path
from typing import Any

from reproductions.catalogue import PAPERS, paper_of
from reproductions.claim_checks import STATUSES, Claim, JudgedClaim, Status
from reproductions.claim_power import seeds_to_decide
from reproductions.figure_plots import live_pictures, pictures
from reproductions.figure_runs import doubled
from reproductions.figure_tables import (
    MARKS,
    claims_table,
    corrections_table,
)
from reproductions.first_page import (
    NAMES,
    OUTCOMES,
    commits,
    fidelity_counts,
    live_sentences,
    main_results,
    of_the_paper,
    paragraphs,
    results_of,
    standing_of,
    statuses_by_outcome,
    times,
    took_s,
)
from reproductions.further_seeds import parts_of
from reproductions.generated_text import updated
from reproductions.live_figure import LiveFigure
from reproductions.published_figure import AnyFigure, Reproduced
from reproductions.sentences_plot import sentences_picture
from reproductions.stored_results import (
    DATA,
    FOLDER,
    Stored,
    StoredResult,
    has_curves,
    sections,
    stored,
    take_in,
    trimmed,
    write_verdicts,
)
from testbed.errors import BadInput

OVERVIEW = "README"
README = Path("README.md")
RULES = "reproductions/claims"
"""The ledger, from the project's own folder."""
TAKEN_AGAIN = (
    "Results that are old, or from before their rules, are taken again by "
    "these commands. Minutes are those of the stored runs: another "
    "interpretation may take longer."
)
UNDECIDED = (
    "The undecided claims of results that count, by the seeds that would "
    "decide them, were means and deviations those of the seeds so far. Where "
    "it takes over a hundred, the mean lies near an end of its band:"
)
ON_THE_LIVE_NETWORK = (
    "The sentences that were judged on the live network, by the rules at the "
    "links and the values of the live runs alone:"
)
SENTENCES = "sentences.svg"
SENTENCES_IN_WORDS = (
    "The sentences of each paper by what became of them: how many hold with "
    "their numbers, hold as a direction, do not hold, and cannot be decided"
)
STEPS = (10, 20, 40, 100)
"""Numbers of seeds by which undecided claims are counted."""
COUNTED = " | ".join(MARKS)
BEFORE = "of these before its rules"


def generated_parts(folder: Path = FOLDER) -> dict[str, str]:
    """The generated part of every page by the page's name."""
    every = stored(folder)
    parts = {OVERVIEW: _overview(every)}
    for paper in PAPERS:
        of_paper = results_of(every, paper)
        if of_paper:
            blocks = [_brief(of_paper), _table(of_paper, "")]
            for name, result in of_paper.items():
                blocks.append(_section(name, result, every))
            parts[paper] = "\n\n".join(blocks)
    return parts


# -- the first page and the README ---------------------------------------------


def _overview(every: Stored) -> str:
    """Counts by paper, then simulated figures and live ones, with links."""
    simulated: dict[str, StoredResult] = {}
    live: dict[str, StoredResult] = {}
    for name, result in every.items():
        group = live if result.live else simulated
        group[name] = result
    tables = [
        _summary_picture(DATA),
        paragraphs(every),
        "The same in numbers, fitted ones in brackets:",
        _fates(every),
        "The main results of each paper, in its order:",
        main_results(every),
    ]
    if live:
        tables += [ON_THE_LIVE_NETWORK, live_sentences(every)]
    tables += [
        "All verdicts:",
        counts_by_paper(every),
        UNDECIDED,
        _seeds_to_decide(every),
        commits(every),
        times(every),
        _table(simulated, "link"),
    ]
    if live:
        tables += ["Measured on the live network:", _table(live, "link")]
    tables += _without_results(every)
    again = _commands(every)
    if again:
        tables += [
            TAKEN_AGAIN,
            f"```console\n{again}\n```",
        ]
    return "\n\n".join(tables)


def _summary_picture(data: str) -> str:
    """The picture of all sentences, for a page from which ``data`` is the folder
    of results.
    """
    return f"![{SENTENCES_IN_WORDS}]({data}/{SENTENCES})"


def _without_results(every: Stored) -> list[str]:
    """Figures that have rules and were never taken; nothing if all were."""
    lines = []
    for name, figure in sections().items():
        if name not in every:
            claims = len(figure.claims)
            command = _take(figure, figure.seeds)
            lines.append(
                f"| {name} | {figure.title} | {claims} | `{command}` |"
            )
    if not lines:
        return []
    header = ["| figure | what | claims | command |", f"|{'---|' * 4}"]
    return ["With rules, and never taken:", "\n".join([*header, *lines])]


def _fates(every: Stored) -> str:
    """A row for each paper: its sentences by outcome, fitted ones in brackets."""
    headings = " | ".join(outcome.heading.lower() for outcome in OUTCOMES)
    lines = [
        f"| paper | judged | {headings} | {BEFORE} | old, not counted |",
        f"|{'---|' * (len(OUTCOMES) + 4)}",
    ]
    for paper in PAPERS:
        old = 0
        before = 0
        for result in results_of(every, paper).values():
            count = sum(map(of_the_paper, result.done.judged))
            if result.old:
                old += count
            elif not result.in_advance:
                before += count
        total: list[Status] = []
        counts = []
        for statuses in statuses_by_outcome(every, paper).values():
            total += statuses
            counts.append(_with_fitted(statuses))
        numbers = " | ".join([_with_fitted(total), *counts])
        lines.append(f"| {NAMES[paper]} | {numbers} | {before} | {old} |")
    return "\n".join(lines)


def _with_fitted(statuses: Sequence[Status]) -> str:
    """A number of claims; how many of them are fitted in brackets."""
    fitted = statuses.count("fitted")
    if not fitted:
        return str(len(statuses))
    return f"{len(statuses)} ({fitted} fitted)"


def _commands(every: Stored) -> str:
    """Commands that take what does not have its rules first, with the time
    that the runs took before.
    """
    lines = []
    for name, result in every.items():
        if result.old or not result.in_advance:
            done = result.done
            seeds = done.figure.seeds
            minutes = took_s(result.record) / 60
            # A command in stages stops by the values, about where it did
            # before.
            if not done.stages:
                minutes *= seeds / max(done.seeds, 1)
            command = _command(done, seeds)
            lines.append(f"$ {command:64} # {minutes:.0f} min, {name}")
    return "\n".join(lines)


def counts_by_paper(every: Stored) -> str:
    """Verdicts by paper and status; results that are old are counted apart."""
    lines = [
        f"| paper | claims | {COUNTED} |",
        "|---|---|---|---|---|",
    ]
    for paper in PAPERS:
        for status, judged in _groups(results_of(every, paper)):
            lines.append(_counts(f"{NAMES[paper]} | {status}", judged))
    for status, judged in _groups(every):
        lines.append(_counts(f"**all** | {status}", judged))
    return "\n".join(lines)


def _seeds_to_decide(every: Stored) -> str:
    """Undecided claims of the papers by the number of seeds that would decide
    them.
    """
    columns = [f"up to {step}" for step in STEPS]
    columns += [f"over {STEPS[-1]}", "one seed tells nothing"]
    lines = [
        f"| paper | undecided | {' | '.join(columns)} |",
        f"|{'---|' * (len(columns) + 2)}",
    ]
    for paper in PAPERS:
        wanted: list[float] = []
        for result in results_of(every, paper).values():
            if not result.old:
                wanted += seeds_to_decide(result.done).values()
        places = Counter(map(_column, wanted))
        counts = [str(places[place]) for place in range(len(columns))]
        lines.append(
            f"| {NAMES[paper]} | {len(wanted)} | {' | '.join(counts)} |"
        )
    return "\n".join(lines)


def _column(seeds: float) -> int:
    """The place of a number of seeds among the columns."""
    if math.isnan(seeds):
        return len(STEPS) + 1
    return bisect_left(STEPS, seeds)


def _groups(own: Stored) -> Iterator[tuple[str, list[JudgedClaim]]]:
    """Claims by status, and those of old results, where there are any."""
    current: list[JudgedClaim] = []
    old: list[JudgedClaim] = []
    for result in own.values():
        group = old if result.old else current
        group += result.done.judged
    for status in STATUSES:
        judged = [one for one in current if one.claim.status == status]
        if judged:
            yield status, judged
    papers = list(filter(of_the_paper, old))
    if papers:
        yield "of the papers, in old results, not counted", papers
    own_checks = list(filterfalse(of_the_paper, old))
    if own_checks:
        yield "own check, in old results, not counted", own_checks


def _counts(label: str, judged: Sequence[JudgedClaim]) -> str:
    verdicts = Counter[str](one.verdict for one in judged)
    counts = " | ".join(str(verdicts[verdict]) for verdict in MARKS)
    return f"| {label} | {counts} |"


def readme_part(folder: Path = FOLDER) -> str:
    """The counts over all papers, for the README."""
    lines = [f"| claims | {COUNTED} |", "|---|---|---|---|"]
    for status, judged in _groups(stored(folder)):
        lines.append(_counts(status, judged))
    table = "\n".join(lines)
    # From where the README is, whatever folder the values were read from.
    return f"{_summary_picture(f'{FOLDER}/{DATA}')}\n\n{table}"


# -- a paper's page ------------------------------------------------------------


def _brief(own: Stored) -> str:
    """The paper's sentences by what became of them; own checks and old results
    apart.
    """
    lines = []
    for outcome in OUTCOMES:
        sentences = []
        for name, result in own.items():
            if not result.old:
                for judged in filter(outcome.has, result.done.judged):
                    sentences.append(_line_of(name, judged.claim))
        lines.append(f"**{outcome.heading}: {len(sentences)}**")
        lines.append("\n".join(sentences) or "- none")
    return "\n\n".join(lines)


def _line_of(name: str, claim: Claim) -> str:
    """A sentence in a list, with a link to its figure."""
    remark = ", fitted" if claim.status == "fitted" else ""
    return f"- {claim.text} ([{name}](#{name}){remark})"


def _table(own: Stored, link: str) -> str:
    """A row per figure: the paper's claims counted, and the time of its runs."""
    own_checks = "own checks that hold | time of its runs | standing"
    lines = [
        f"| figure | what | seeds | {COUNTED} | {own_checks} |",
        f"|{'---|' * 9}",
    ]
    lines += [_figure_row(name, one, link) for name, one in own.items()]
    return "\n".join(lines)


def _figure_row(name: str, result: StoredResult, link: str) -> str:
    done = result.done
    # On its paper's own page a link needs no name of a page.
    page = f"{paper_of(done.figure)}.md" if link else ""
    checks = list(filterfalse(of_the_paper, done.judged))
    papers = list(filter(of_the_paper, done.judged))
    hold = sum(judged.verdict == "reproduced" for judged in checks)
    label = f"[{name}]({page}#{name}) | {done.figure.title} | {done.seeds}"
    minutes = f"{took_s(result.record) / 60:.1f} min"
    end = f" {hold} of {len(checks)} | {minutes} | {standing_of(result)} |"
    return _counts(label, papers) + end


def _section(name: str, result: StoredResult, every: Stored) -> str:
    """A figure's section; ``every`` has the figures that look for causes."""
    done = result.done
    record = result.record
    figure = done.figure
    size = f"{figure.size}; {_seeds(done, record)}"
    values = f"[values]({DATA}/{name}.json)"
    above = "/".join([os.pardir] * len(FOLDER.parts))
    rules = f"[rules]({above}/{RULES}/{name}.yaml) `{figure.ledger}`"
    # A result may have fewer seeds than its rules need now.
    taken = max(done.seeds, figure.seeds)
    parts = [
        f"## {name}",
        f"**{figure.title}** ({figure.source}; {figure.where}). {size}.",
        f"`{_command(done, taken)}`; {_taken(result)}; {values}, {rules}",
        f"![{figure.title}]({DATA}/{name}.svg)",
        claims_table(done),
    ]
    if isinstance(figure, LiveFigure) and figure.reduced:
        parts.insert(3, figure.reduced)
    if result.old:
        parts.insert(3, f"**Old, not counted:** {result.old}.")
    corrections = corrections_table(done)
    if corrections:
        parts.append("Corrected rules and verdicts:\n\n" + corrections)
    causes = []
    for judged in done.judged:
        claim = judged.claim
        if judged.verdict == "not reproduced" and claim.cause:
            causes.append(f"- *{claim.text}*: {_cause(claim.cause, every)}")
    if causes:
        parts.append(
            "Causes, or what looked for them:\n\n" + "\n".join(causes)
        )
    if result.live:
        parts.append(" ".join(_of_runs(record["runs"])))
    return "\n\n".join(parts)


def _cause(cause: str, every: Stored) -> str:
    """A cause; what it says of figures that do not count is marked."""
    remarks = []
    for name in sections():
        # Whole names alone: dcloud-fig1 is no part of dcloud-fig10.
        if not re.search(rf"{name}(?![\w-])", cause):
            continue
        if name not in every:
            remarks.append(f"{name} is not taken yet")
        elif every[name].old:
            remarks.append(f"{name} is old")
    if not remarks:
        return cause
    return f"{cause} **({'; '.join(remarks)})**"


def _taken(result: StoredResult) -> str:
    """Commit, machine, and whether the rules came first."""
    commit = str(result.record["code"]["commit"] or "unknown")[:10]
    ledger = result.record.get("ledger") or {}
    rules = "taken before its rules were fixed"
    if result.in_advance:
        rules = f"taken under the rules `{ledger['digest']}`"
    elif ledger:
        rules = "its rules were changed after its runs"
    played = ""
    if set(result.runs_at) - {result.record["code"]["commit"]}:
        parts = []
        for played_at, number in result.runs_at.most_common():
            place = "an unknown commit"
            if played_at is not None:
                place = played_at[:10]
            parts.append(f"{number} at {place}")
        played = f" (live runs: {', '.join(parts)})"
    return f"commit {commit}{played}, {_machines(result.record)}; {rules}"


def _of_runs(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on the live runs: their verdicts, tries, and replays that
    differ.
    """
    yield f"{len(runs)} live runs: fidelity {fidelity_counts(runs)}."
    for run in runs:
        where = f"{run['series']} at {run['x']:g}, seed {run['seed']}"
        if run["reasons"]:
            yield f"{where}: {run['verdict']}, {'; '.join(run['reasons'])}."
        if run["attempts"] > 1:
            yield f"{where}: {run['attempts']} tries."
        if run["replay"] != "every decision the same":
            yield f"{where}: {run['replay']}."


def _command(done: Reproduced, seeds: int) -> str:
    """The command that takes a figure with so many seeds, or in its stages."""
    if not done.stages:
        return _take(done.figure, seeds)
    first = done.stages[0]
    last = done.stages[-1]
    # Seeds that were added by hand may be of any number.
    if doubled(first, last) != done.stages:
        return _take(done.figure, seeds)
    return _take(done.figure, first, f" --most-seeds {last}")


def _take(figure: AnyFigure, seeds: int, further: str = "") -> str:
    """The command that takes a figure with so many seeds, and ``further``
    options.
    """
    command = f"testbed reproduce {figure.name} --seeds {seeds}{further}"
    if isinstance(figure, LiveFigure):
        return f"sudo {command} --live"
    return command


def _seeds(done: Reproduced, record: Mapping[str, Any]) -> str:
    """The seeds of a result: of live runs those of their experiment files and
    the ones after these.
    """
    if done.figure.exact:
        return "nothing random"
    used = sorted({run["seed"] for run in record.get("runs", ())})
    if not used:
        first = record.get("first_seed", 1)
        used = list(range(first, first + done.seeds))
    return _range_text(used)


def _machines(record: Mapping[str, Any]) -> str:
    """The machine that took a result; of several each, with its seeds."""
    ranges_of: dict[str, list[range]] = {}
    for part in parts_of(record):
        first = part["first_seed"]
        seeds = range(first, first + part["seeds"])
        ranges_of.setdefault(_machine(part["machine"]), []).append(seeds)
    if len(ranges_of) == 1:
        return next(iter(ranges_of))
    # Live results count repetitions; their runs name the seeds.
    shift = 0
    if "runs" in record:
        least = min(run["seed"] for run in record["runs"])
        shift = least - record.get("first_seed", 1)
    named = []
    for machine, ranges in ranges_of.items():
        texts = [_range_text(seeds, shift) for seeds in ranges]
        named.append(f"{machine} ({', '.join(texts)})")
    return "; ".join(named)


def _range_text(seeds: Sequence[int], shift: int = 0) -> str:
    """Seeds from the first to the last, in words; ``shift`` is added to each."""
    first = seeds[0] + shift
    last = seeds[-1] + shift
    if last > first:
        return f"seeds {first} to {last}"
    return f"seed {first}"


def _machine(machine: Mapping[str, Any]) -> str:
    """``2 × AMD EPYC, 23.5 GiB``."""
    processor = machine["cpu_model"] or "processors of unknown make"
    gib = machine["memory_bytes"] / 2**30
    return f"{machine['cpus']} × {processor}, {gib:.1f} GiB"


# -- files ---------------------------------------------------------------------


def draw_pictures(folder: Path = FOLDER) -> None:
    """Draws every picture that the values alone determine, in today's style."""
    every = stored(folder)
    for name, result in every.items():
        figure = result.done.figure
        # Curves over a run's time come from its events, which are not
        # stored.
        if has_curves(figure):
            continue
        if isinstance(figure, LiveFigure):
            drawn = live_pictures(result.done, figure, {})
        else:
            drawn = pictures(result.done)
        svg = trimmed(drawn["svg"].decode("utf-8"))
        (folder / DATA / f"{name}.svg").write_text(svg, "utf-8")
    outcomes = {}
    for paper in PAPERS:
        outcomes[NAMES[paper]] = statuses_by_outcome(every, paper)
    summary = sentences_picture(outcomes)["svg"].decode("utf-8")
    (folder / DATA / SENTENCES).write_text(trimmed(summary), "utf-8")


def write_pages(folder: Path = FOLDER, readme: Path = README) -> None:
    """Writes the generated part of every page again."""
    pages = {readme: readme_part(folder)}
    for name, part in generated_parts(folder).items():
        pages[folder / f"{name}.md"] = part
    for page, generated in pages.items():
        text = page.read_text("utf-8")
        page.write_text(updated(text, generated), "utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        try:
            taken = ", ".join(take_in(Path(argument)))
        except BadInput as error:
            sys.exit(f"{argument}: {error.message}\nhint: {error.hint}")
        sys.stdout.write(f"{argument}: {taken}\n")
    # The pages show the standing that is written with the verdicts.
    write_verdicts()
    draw_pictures()
    write_pages()
