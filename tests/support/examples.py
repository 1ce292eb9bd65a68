"""Numbers of examples of properties, which differ between the forms of the test run.

The profile ``quick`` is that of `make check` and of `provision.sh test`; with ``--all``, as by
default, each property is tried with all its examples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., object])
QUICK = 20
"""Examples a property in the short form."""


def seeded_inputs(number: int) -> int:
    """Inputs that a test draws by their number: a fifth in the short form."""
    if settings.default == settings.get_profile("quick"):
        return number // 5
    return number


def examples(number: int, **more: Any) -> Callable[[Test], Test]:
    """Tries a property with ``number`` examples, in the short form with at most QUICK.

    ``more``: other settings of Hypothesis.
    """
    if settings.default == settings.get_profile("quick"):
        number = min(number, QUICK)
    # A list of one's own would take the place of the profile's.
    suppressed = {
        *settings.default.suppress_health_check,
        *more.pop("suppress_health_check", ()),
    }
    return settings(
        max_examples=number, suppress_health_check=suppressed, **more
    )
