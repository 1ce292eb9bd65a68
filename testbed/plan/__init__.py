"""Decisions as flow rules, limits, parts of the switch and agents; fidelity; pure."""
