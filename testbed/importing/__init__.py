"""Networks, workloads and traces of other tools, as experiment files."""
