"""The simulator: flows and running times as arithmetic."""
