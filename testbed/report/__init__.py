"""The report of a run folder: one page with its pictures, and tables in a terminal."""
