"""Benchmarks that a person can run: ``python -m bench --list``, ``python -m
bench NAME --json``.
"""
