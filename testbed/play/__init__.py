"""An experiment played on a backend, into a run folder."""
