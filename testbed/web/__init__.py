"""The live page of runs and of the network that is up, and its metrics."""
