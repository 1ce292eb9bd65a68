"""The picture of a policy's place among the others, and its values."""

from __future__ import annotations

from testbed.policy_trials.check_sentences import (
    check_sentences,
    standing_caption,
)
from testbed.policy_trials.policy_standing import METRICS, Row, Standing
from testbed.policy_trials.policy_subject import PolicyFinding
from testbed.policy_trials.standing_pictures import standing_picture
from testbed.sweeps.intervals import Estimate


def row(policy: str, success: float, slowdown: float, own: bool) -> Row:
    metrics: dict[str, Estimate | None] = dict.fromkeys(METRICS)
    metrics["success_rate"] = Estimate(success, 0.05, 5)
    metrics["bounded_slowdown_mean"] = Estimate(slowdown, 0.5, 5)
    return Row(policy, own, metrics)


ROWS = (
    row("best", 0.9, 1.5, own=False),
    row("mine", 0.8, 2.0, own=True),
    row("worst", 0.1, 900.0, own=False),
    Row(
        "broken",
        own=False,
        metrics=dict.fromkeys(METRICS),
        failed="it raised",
    ),
)
STANDING = Standing("a batch", (1, 2, 3, 4, 5), ROWS, "")


def test_it_says_and_shows_the_place() -> None:
    picture = standing_picture(STANDING, 2)
    assert picture.kind == "standing-2"
    assert "mine is number 2 of 3 policies" in picture.alt
    success, slowdown = picture.draw().axes
    names = [label.get_text() for label in success.get_yticklabels()]
    assert names == ["best", "mine", "worst"]
    assert success.get_xlabel() == "jobs that finished in time [%]"
    assert slowdown.get_xscale() == "log"
    ticks = [label.get_text() for label in slowdown.get_xticklabels()]
    assert "10" in ticks
    assert not any("$" in tick for tick in ticks)


def test_its_values_are_those_of_the_table() -> None:
    head, *rows = standing_picture(STANDING, 1).rows()
    assert len(rows) == len(ROWS)
    for values, shown in zip(rows, ROWS, strict=True):
        cells = dict(zip(head, values, strict=True))
        assert cells["policy"] == shown.policy
        assert cells["under_check"] == shown.own
        success = shown.metrics["success_rate"]
        expected = None if success is None else success.mean
        assert cells["success_rate"] == expected


def test_a_policy_without_means_has_no_place() -> None:
    failed = Row(
        "mine", own=True, metrics=dict.fromkeys(METRICS), failed="it raised"
    )
    picture = standing_picture(Standing("a batch", (1,), (failed,), ""), 1)
    assert "has no means" in picture.alt
    assert len(picture.draw().axes) == 2


def test_shares_are_drawn_from_0_to_100_as_far_as_is_possible() -> None:
    sure = row("sure", 0.99, 1.0, own=False)
    standing = Standing("a batch", (1, 2), (sure,), "")
    success, _ = standing_picture(standing, 1).draw().axes
    assert success.get_xlim() == (-3, 103)
    (bars,) = success.containers
    (segment,) = bars[2][0].get_segments()
    assert max(x for x, _ in segment) == 100.0


def finding(check: str, verdict: str) -> PolicyFinding:
    return PolicyFinding(check, "", verdict, "")  # type: ignore[arg-type]


def test_a_check_opens_with_what_passed_and_the_place() -> None:
    findings = [
        finding("replay", "ok"),
        finding("no starvation", "not declared"),
    ]
    checks, place = check_sentences(findings, [STANDING])
    assert checks == (
        "No check failed. 1 of 2 checks passed; no starvation: this policy"
        " does not declare it, so that nothing decides."
    )
    assert place.startswith("a batch: mine is number 2 of 3 policies")
    failed = [finding("claims", "failed"), finding("replay", "ok")]
    assert check_sentences(failed, []) == [
        "Failed: claims. 1 of 2 checks passed."
    ]


def test_the_caption_tells_the_columns() -> None:
    caption = standing_caption(STANDING)
    assert caption.startswith(
        "Means over 5 seeds, ± half of the 95 % confidence interval."
    )
    assert "Mean wait: of the jobs that started" in caption
    single = Standing("a batch", (1,), ROWS, "")
    assert standing_caption(single).startswith("Values of one seed.")
