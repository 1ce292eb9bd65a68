"""The Python interface: experiments, runs and comparisons as objects for
scripts and notebooks.
"""
