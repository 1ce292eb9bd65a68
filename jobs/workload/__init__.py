"""Jobs drawn from distributions, reproducibly: streams by name, one law per quantity."""
