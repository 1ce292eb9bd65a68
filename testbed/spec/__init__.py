"""Experiment files: text to values, with every error at its place and all of
them at once.
"""
