"""Sleep for ranks that wait for others.

Open MPI polls its connections. With ``mpi_yield_when_idle`` a rank that waits
yields its processor, over and over: it takes all processor time that others
leave, and a software switch has to wait for it. This library, which is loaded
into ranks before the C library, makes each yield a short sleep.
"""

from __future__ import annotations

import shutil

from jobs.linux import C_COMPILERS

SLEEP_US = 50
"""With it a waiting rank takes some 6 % of a processor."""
LIBRARY = "rank-waits.so"
SOURCE_FILE = "rank-waits.c"
SOURCE = f"""
#include <time.h>

int sched_yield(void)
{{
    struct timespec pause = {{ 0, {SLEEP_US * 1000} }};

    nanosleep(&pause, 0);
    return 0;
}}
"""


def compiler_words(folder: str) -> tuple[str, ...]:
    """The command that compiles the source in ``folder`` to the library there;
    empty without a C compiler.
    """
    compiler = next(filter(shutil.which, C_COMPILERS), None)
    if compiler is None:
        return ()
    library = f"{folder}/{LIBRARY}"
    source = f"{folder}/{SOURCE_FILE}"
    return (compiler, "-shared", "-fPIC", "-o", library, source)
