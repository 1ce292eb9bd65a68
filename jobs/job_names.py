"""Names of jobs, from whatever source they come.

They become parts of file names and of commands' arguments, and are read in
terminals and spreadsheets.
"""

SAFE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
