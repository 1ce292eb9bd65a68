"""Backends: they play the engine's decisions, and report completions."""
