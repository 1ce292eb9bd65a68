"""Trials of a policy: correctness on random cases, and its standing among
others.
"""
