"""The adversary's verdict: an attack that gets through is missed, a weak one too."""

from __future__ import annotations

import pytest

from bench.adversary import (
    attacked,
    chosen_attacks,
    row_of,
    table,
    together,
)
from testbed.errors import BadInput
from tests.adversary import whole_commands
from tests.adversary.attack import Attack, Tries
from tests.adversary.catalogue import attacks
from tests.adversary.frames import KINDS, Scene, Station


@pytest.mark.parametrize(
    ("on_testbed", "on_unguarded", "held"),
    [
        (Tries(5, 0), Tries(5, 1), True),
        (Tries(5, 1), Tries(5, 5), False),
        (Tries(5, 0), Tries(5, 0), False),
        (Tries(0, 0), Tries(5, 5), False),
    ],
)
def test_a_verdict(
    on_testbed: Tries, on_unguarded: Tries, held: bool
) -> None:
    attack = Attack("a", "b", lambda: on_testbed, lambda: on_unguarded)
    row = attacked(attack)
    assert row.meets is held
    assert ("MISSED" in table([row])) is not held
    assert together([row, row]).samples == (2 * on_testbed.through,)
    assert together([row, row]).meets is held


def test_an_attack_that_cannot_be_made_is_missed_and_says_why() -> None:
    def cannot() -> Tries:
        raise RuntimeError("the bomb does not grow")

    row = row_of(Attack("bomb", "b", cannot, lambda: Tries(5, 5)))
    assert not row.meets
    reason = "MISSED (not made: RuntimeError: the bomb does not grow)"
    assert reason in table([row])
    assert not together([row]).meets


def test_attacks_are_chosen_by_their_names() -> None:
    assert chosen_attacks(None)[0].name == "typing"
    assert [a.name for a in chosen_attacks(["frames"])] == ["frames"]
    # A whole name is that attack's alone, a part is of several.
    assert [a.name for a in chosen_attacks(["typing"])] == ["typing"]
    assert len(chosen_attacks(["typing "])) > 1
    with pytest.raises(BadInput, match="no attack is named 'x-ray'"):
        chosen_attacks(["x-ray"])


def test_names_differ_and_few_have_no_unguarded_target() -> None:
    names = [attack.name for attack in attacks()]
    assert len(set(names)) == len(names)
    without = [a.name for a in attacks() if a.on_unguarded is None]
    assert len(without) < len(names) / 2


def test_attacks_by_tests_name_tests_that_exist() -> None:
    for _, tests, _ in whole_commands.TESTED.values():
        for test in tests:
            file, _, name = test.partition("::")
            text = (whole_commands.ROOT / file).read_text("utf-8")
            assert f"\ndef {name}" in text


def test_frames_are_of_21_kinds_and_all_carry_the_mark() -> None:
    stations = [
        Station(f"10.0.0.{n}", f"02:00:00:00:00:0{n}") for n in range(1, 5)
    ]
    frames = {
        name: kind(Scene(*stations), b"mark")
        for name, kind in KINDS.items()
    }
    assert len(set(frames.values())) == 21
    assert all(b"mark" in frame for frame in frames.values())
