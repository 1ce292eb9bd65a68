"""Spark in a job's VMs: a master and the driver in the first VM, a worker in each
other one. A script of the standard library alone.

``spark-head REMOTE-SHELL VM,VM… CORES RANK-START PYTHON WORD…``: Spark is that
of ``PYTHON``, which has PySpark. The remote shell starts the workers, which
start an executor of ``CORES`` cores each for the driver,
:mod:`jobs.live.spark_driver`, beside ``RANK-START``. Everything ends with the
driver, with its exit code.
"""

import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
PORT = 7077
DRIVER = "spark-driver"
DAEMON_MEMORY = "128m"
MEMORY = "512m"
"""Of an executor, and of the driver."""
ADVERTISED_MEMORY = "1t"
"""Of a worker, which counts only: the VM's control group is the limit."""
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""A VM has one processor or less: no threads for garbage, and no second compiler,
which takes more of it than it gives back within a minute.
"""
SETTINGS_FILE = "spark-defaults.conf"
WORK_FOLDER = "spark-work"
PATIENCE_S = 50.0
LOOK_S = 0.1
GRACE_S = 5.0
NO_SPARK = 127
NO_MASTER = 1


def main(words: list[str]) -> int:
    """Runs the driver of ``words[5:]``; its exit code."""
    shell, names, cores, rank_start, python = words[:5]
    try:
        home = _spark_home(python)
    except NoSpark as error:
        return _failed(f"{python} has no PySpark: {error}", NO_SPARK)
    vms = names.split(",")
    executor_vms = vms[1:] or vms
    spark_class = f"{home}/bin/spark-class"
    children = [_started_master(spark_class, vms[0])]
    try:
        # One that comes before the master would come again 10 s later.
        if not _listens(vms[0]):
            return _failed("Spark's master does not listen", NO_MASTER)
        for vm in executor_vms:
            worker = worker_words(spark_class, vms[0], vm, cores)
            for command in (worker, log_words()):
                children.append(subprocess.Popen([shell, vm, *command]))
        driver = [f"{Path(rank_start).parent}/{DRIVER}", rank_start]
        settings = driver_settings(vms[0], len(executor_vms), int(cores))
        return subprocess.call(
            [python, *driver, *words[5:]],
            env=os.environ
            | {
                "HOSENET_RANK": "0",
                "PYSPARK_PYTHON": python,
                "PYSPARK_SUBMIT_ARGS": settings,
            },
        )
    finally:
        _end(children)


def daemon_variables(folder: str) -> dict[str, str]:
    """Environment of the master and of each worker."""
    return {
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_LOCAL_DIRS": f"{folder}/spark-local",
        "SPARK_WORKER_DIR": f"{folder}/{WORK_FOLDER}",
    }


def worker_words(
    spark_class: str,
    first_vm: str,
    vm: str,
    cores: str,
) -> list[str]:
    """The shell command that starts a VM's worker in its working folder."""
    # All VMs of a job have the same working folder.
    variables = daemon_variables(str(Path.cwd()))
    words = ["exec", "env"]
    for name, value in variables.items():
        words.append(shlex.quote(f"{name}={value}"))
    words += [spark_class, WORKER, "--host", vm, "--cores", cores]
    words += ["--memory", ADVERTISED_MEMORY, "--webui-port", "0"]
    return [*words, f"spark://{first_vm}:{PORT}"]


def log_words() -> list[str]:
    """The shell command that prints what a VM's executors print, which their
    worker writes to files.
    """
    files = f"{WORK_FOLDER}/*/*"
    waiting = f"until [ -e {files}/stderr ]; do sleep 1; done;"
    return [waiting, f"exec tail -q -n +1 -F {files}/std*"]


def driver_settings(
    first_vm: str,
    n_executors: int,
    cores: int,
) -> str:
    """Arguments that PySpark passes to ``spark-submit``: the job's, and before
    them those of a ``spark-defaults.conf`` among its files.
    """
    settings = {
        "spark.driver.host": first_vm,
        "spark.driver.bindAddress": first_vm,
        "spark.driver.memory": MEMORY,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": MEMORY,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.cores": str(cores),
        "spark.cores.max": str(cores * n_executors),
        "spark.ui.enabled": "false",
        # Else the first executors that come would take all of the tasks.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "160s",
    }
    words = ["--master", f"spark://{first_vm}:{PORT}"]
    for name, value in (settings | _file_settings()).items():
        words += ["--conf", f"{name}={value}"]
    return shlex.join([*words, "pyspark-shell"])


def _file_settings() -> dict[str, str]:
    """Settings of the file in the working folder: a name, blanks, its value."""
    file = Path(SETTINGS_FILE)
    settings: dict[str, str] = {}
    if not file.exists():
        return settings
    for line in file.read_text("utf-8").splitlines():
        name, _, value = line.strip().partition(" ")
        if value and not name.startswith("#"):
            settings[name] = value.strip()
    return settings


class NoSpark(Exception):
    """A Python cannot be run, or has no PySpark: its last line."""


def _spark_home(python: str) -> str:
    """The folder of a Python's PySpark. Raises NoSpark."""
    code = "import pyspark; print(pyspark.__path__[0])"
    try:
        answer = subprocess.run(
            [python, "-c", code],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSpark(str(error)) from None
    if answer.returncode:
        lines = answer.stderr.splitlines()
        raise NoSpark(lines[-1] if lines else "it says nothing")
    return answer.stdout.strip()


def _started_master(
    spark_class: str,
    vm: str,
) -> subprocess.Popen[bytes]:
    words = [spark_class, MASTER, "--host", vm, "--port", str(PORT)]
    variables = daemon_variables(str(Path.cwd()))
    return subprocess.Popen(words, env=os.environ | variables)


def _listens(vm: str) -> bool:
    """Waits for the master; False where it does not come."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            socket.create_connection((vm, PORT), timeout=LOOK_S).close()
        except OSError:
            time.sleep(LOOK_S)
        else:
            return True
    return False


def _failed(
    sentence: str,
    code: int,
) -> int:
    """Says a sentence; the exit code after it."""
    print(sentence, file=sys.stderr)
    return code


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """By the remote shell's end its worker ends too, with its executor."""
    for child in reversed(children):
        child.terminate()
    for child in children:
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
