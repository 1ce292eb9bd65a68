"""Sweeps: an experiment at many values, each cell computed once and filed by
its inputs.
"""
