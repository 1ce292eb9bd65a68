"""Free capacity over time, one view for all policies."""
