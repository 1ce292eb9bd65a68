"""Backends: what plays the engine's decisions, and tells what came of them."""
