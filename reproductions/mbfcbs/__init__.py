"""MBFCBS's evaluation (Section 5): the small cluster of Haizea and the simulated one."""
