"""Labs of a course on SDN reservation: pages, starting points, checks and marks."""
