"""Decisions as flow rules, limits and parts of the switch; pure."""
