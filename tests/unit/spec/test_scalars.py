"""Plain scalars: what YAML versions dispute is refused, and the hint means what was meant."""

from __future__ import annotations

import math
import re

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.spec.document import ScalarError, plain_key, plain_scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-7", -7),
        ("1000", 1000),
        ("0.5", 0.5),
        ("-1.25", -1.25),
        ("true", True),
        ("false", False),
        ("500 Mbit/s", "500 Mbit/s"),
        ("sort-600", "sort-600"),
        ("1.2.3", "1.2.3"),
        ("2024-01-01", "2024-01-01"),
        ("norway", "norway"),
        ("12 %", "12 %"),
        ("7z", "7z"),
    ],
)
def test_values(text: str, value: object) -> None:
    read = plain_scalar(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("no", "write false, or 'no'"),
        ("Yes", "write true, or 'Yes'"),
        ("ON", "write true, or 'ON'"),
        ("off", "write false, or 'off'"),
        ("TRUE", "write true, or 'TRUE'"),
        (
            "10:20",
            "the number 620: write a time with its unit, as 620 s, or '10:20'",
        ),
        ("1:00:00", "the number 3600"),
        ("-1:30", "the number -90: write a time with its unit, as -90 s"),
        ("1e3", "write 1000, or '1e3'"),
        ("1.5e3", "write 1500, or '1.5e3'"),
        ("1e-3", "write 0.001, or '1e-3'"),
        ("1e999999999", "write the number without an exponent"),
        ("010", "octal 8): write 10, or '010'"),
        ("-017", "octal -15): write -17, or '-017'"),
        ("089", "089 begins with a 0: write 89"),
        ("0x1F", "write 31, or '0x1F'"),
        ("0o17", "write 15, or '0o17'"),
        ("0b11", "write 3, or '0b11'"),
        ("1_000", "write 1000, or '1_000'"),
        ("+12", "write 12"),
        (".5", "write 0.5"),
        ("5.", "write 5"),
        ("-.5", "write -0.5"),
        (".inf", "not a finite number"),
        (".NaN", "not a finite number"),
        ("", "has no value"),
        ("~", "has no value"),
        ("null", "has no value"),
        ("1" * 31, "too long for a number: 31 characters"),
        ("0x" + "f" * 5000, "too long for a number: 5002 characters"),
        ("1e" + "9" * 20, "write the number without an exponent"),
        ("0._", "0._ has an underscore: write 0,"),
        ("1.5_0", "write 1.50,"),
        ("-1_0.2_5", "write -10.25,"),
        (".5_", "write .5,"),
        ("1.0_e+3", "write 1.0e+3,"),
    ],
)
def test_surprises(text: str, hint: str) -> None:
    with pytest.raises(ScalarError) as caught:
        plain_scalar(text)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "key",
    [
        "on",
        "no",
        "y: <<",
        "<<",
        "true",
        "null",
        "1e3",
        "1e9999999999999999999",
    ],
)
def test_keys_are_words(key: str) -> None:
    key = key.removeprefix("y: ")
    with pytest.raises(ScalarError):
        plain_key(key)
    assert plain_key("bandwidth") == "bandwidth"


@example("0b_")
@given(
    st.text(
        "0123456789.eE+-_:xXobtrufalsnyTRUENO~ ", min_size=1, max_size=12
    )
)
def test_nothing_is_read_unlike_yaml_reads_it(text: str) -> None:
    """Text taken for a number or a truth value is one to PyYAML too, and of the same value."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return
    if (
        not isinstance(node, yaml.ScalarNode)
        or node.style
        or not node.value
    ):
        return
    try:
        value = plain_scalar(node.value)
    except ScalarError:
        return
    if isinstance(value, str):
        theirs = value
        if not re.match(r"[0-9]{4}-", node.value):
            try:
                theirs = yaml.safe_load(text)
            except ValueError:
                # PyYAML takes "0b_" for a number, and has no value for it.
                assert value == node.value
                return
        assert isinstance(theirs, str), (text, theirs)
    else:
        theirs = yaml.safe_load(text)
        assert type(theirs) is type(value)
        assert theirs == value or (math.isnan(value) and math.isnan(theirs))
