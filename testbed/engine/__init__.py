"""One event loop for every policy and backend, with the states of jobs."""
