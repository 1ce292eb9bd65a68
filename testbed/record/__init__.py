"""The run folder: events, one fold into jobs' lives, metrics, tables, verdicts."""
