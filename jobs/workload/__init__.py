"""Synthetic jobs and jobs of traces: random streams by name, one distribution
per quantity.
"""
