"""Spark's driver in a job's first VM: a script that the program's own Python runs.

``spark-driver RANK-START WORD…``: the Spark context, its executors and their
Python processes are there before the rank tells the agent that it has come, by
the functions of ``RANK-START``. After the start that the job has in common
``WORD…``, a file or ``-m MODULE`` and arguments, runs in this process, where
``SparkSession.builder.getOrCreate()`` finds the context.
"""

import os
import runpy
import signal
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

PATIENCE_S = 160
"""The time in which all executors have to come."""
NO_EXECUTORS = 1


def main(words: list[str]) -> int:
    """Runs the program ``words[1:]``; the exit code of its process."""
    rank_start = loaded(words[0])
    agent = rank_start.connected()
    # Before there are threads. The child runs the program; this process
    # reports how the child ends.
    child = os.fork()
    if child:
        return int(rank_start.watched(child, agent))
    signal.signal(signal.SIGALRM, lambda *_: give_up())
    if not are_executors_there():
        give_up()
    start = rank_start.awaited(agent)
    if start is None:
        return int(rank_start.NOT_RUN)
    # The parent alone keeps the connection: if it is killed, the agent sees
    # that the connection has ended.
    agent.close()
    rank_start.take(start)
    run(words[1:])
    return 0


def loaded(path: str) -> Any:
    """The module of a script without an ending."""
    loader = SourceFileLoader("rank_start", path)
    spec = spec_from_loader("rank_start", loader)
    assert spec is not None  # noqa: S101 - there is a loader
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def are_executors_there() -> bool:
    """Makes the session, and has every core of the executors compute in Java
    and in Python once, so that they load most of their code before the start.

    An alarm ends this process where that takes longer than PATIENCE_S.
    """
    signal.alarm(PATIENCE_S)
    # The testbed's own Python has no such package.
    sql: Any = import_module("pyspark.sql")
    session = sql.SparkSession.builder.getOrCreate()
    context = session.sparkContext
    settings = context.getConf()
    cores = int(settings.get("spark.cores.max"))
    executors = cores // int(settings.get("spark.executor.cores"))
    rows = session.range(0, cores, 1, cores).rdd
    rows.map(len).count()
    # One more than the executors: the driver has an entry too.
    memories = context._jsc.sc().getExecutorMemoryStatus()  # noqa: SLF001 - as PySpark does
    signal.alarm(0)
    return bool(memories.size() > executors)


def give_up() -> None:
    """Ends this process at once, whatever it waits for."""
    print("not all of Spark's executors came", file=sys.stderr, flush=True)
    os._exit(NO_EXECUTORS)


def run(words: list[str]) -> None:
    """Runs a program as Python's command line would."""
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = ""
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    sys.path[0] = os.path.dirname(words[0])  # noqa: PTH120 - as Python does
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
