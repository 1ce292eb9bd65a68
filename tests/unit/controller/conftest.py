"""Hypothesis without time limits: how long an example takes says nothing about the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "controller",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=60,
)
settings.load_profile("controller")
