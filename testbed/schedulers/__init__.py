"""Policies, one module each with its parameters; pure."""
