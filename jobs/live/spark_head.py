"""Spark in a job's VMs: a master and the driver in the first VM, a worker in each
other one, or in the only one. A script of the standard library alone.

``spark-head REMOTE-SHELL VM,VM… CORES RANK-START PYTHON WORD…``: ``PYTHON`` is
the program's interpreter, whose PySpark is used. The remote shell starts the
workers, each of which starts an executor of ``CORES`` cores. The driver,
:mod:`jobs.live.spark_driver`, is in the folder of ``RANK-START`` and runs the
program ``WORD…``. All processes end with the driver, with its exit code.
"""

import os
import re
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
"""Memory of an executor, and of the driver."""
ADVERTISED_MEMORY = "1t"
"""Memory that a worker may give to executors: no limit, as the VM's control group
sets one.
"""
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a VM with one processor or less: no parallel garbage collection, and no
second compiler, which takes more time than it saves within a minute.
"""
SETTINGS_FILE = "spark-defaults.conf"
WORK_FOLDER = "spark-work"
PATIENCE_S = 50.0
"""Longest wait for the output of ``PYTHON``, and for the master."""
RETRY_S = 0.1
GRACE_S = 5.0
NO_SPARK = 127
NO_MASTER = 1
"""Exit codes of a start that ends before the driver."""


def main(words: list[str]) -> int:
    """Runs the driver with the program ``words[5:]``; returns its exit code."""
    shell, names, cores, rank_start, python = words[:5]
    try:
        spark_class = _spark_class(python)
    except NoSpark as error:
        print(f"{python} has no PySpark: {error}", file=sys.stderr)
        return NO_SPARK
    vms = names.split(",")
    executor_vms = vms[1:] or vms
    master = _started_master(spark_class, vms[0])
    children = [master]
    try:
        # The master first: a worker that misses it tries again after 10 s.
        if not _listens(vms[0], master):
            print("Spark's master does not listen", file=sys.stderr)
            return NO_MASTER
        for vm in executor_vms:
            worker = worker_command(spark_class, vms[0], vm, cores)
            for command in (worker, log_command()):
                children.append(subprocess.Popen([shell, vm, command]))
        driver = f"{Path(rank_start).parent}/{DRIVER}"
        settings = driver_settings(vms[0], len(executor_vms), int(cores))
        variables = {
            "HOSENET_RANK": "0",
            "PYSPARK_PYTHON": python,
            "PYSPARK_SUBMIT_ARGS": settings,
        }
        code = subprocess.call(
            [python, driver, rank_start, *words[5:]],
            env=os.environ | variables,
        )
        # Negative after a signal, which no exit code is: 128 and its number,
        # as shells have it.
        return code if code >= 0 else 128 - code
    finally:
        _end(children)


def daemon_variables() -> dict[str, str]:
    """Variables of the master and of each worker."""
    # The working folder's path is the same in all VMs of a job.
    folder = Path.cwd()
    return {
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_LOCAL_DIRS": f"{folder}/spark-local",
        "SPARK_WORKER_DIR": f"{folder}/{WORK_FOLDER}",
    }


def worker_command(
    spark_class: str,
    first_vm: str,
    vm: str,
    cores: str,
) -> str:
    """The shell command that starts a VM's worker in its working folder."""
    words = ["exec", "env"]
    for name, value in daemon_variables().items():
        words.append(f"{name}={value}")
    words += [spark_class, WORKER, "--host", vm, "--cores", cores]
    words += ["--memory", ADVERTISED_MEMORY, "--webui-port", "0"]
    return shlex.join([*words, f"spark://{first_vm}:{PORT}"])


def log_command() -> str:
    """The shell command that prints the output of a VM's executors, which their
    worker writes to files.
    """
    files = f"{WORK_FOLDER}/*/*"
    # By `ls`, as `[` would take no more than one file.
    waiting = f"until ls {files}/stderr; do sleep 1; done >/dev/null 2>&1"
    return f"{waiting}; exec tail -q -n +1 -F {files}/std*"


def driver_settings(
    first_vm: str,
    n_executors: int,
    cores: int,
) -> str:
    """Arguments that PySpark passes to ``spark-submit``: this module's settings.

    Those of a ``spark-defaults.conf`` among the job's files take their place.
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
        # Otherwise the executors that come first would take all tasks.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "160s",
    }
    words = ["--master", f"spark://{first_vm}:{PORT}"]
    for name, value in (settings | _file_settings()).items():
        words += ["--conf", f"{name}={value}"]
    return shlex.join([*words, "pyspark-shell"])


def _file_settings() -> dict[str, str]:
    """Settings of the file in the working folder, as Spark reads it.

    A line is a name, then blanks, ``=`` or ``:``, then a value.
    """
    file = Path(SETTINGS_FILE)
    settings: dict[str, str] = {}
    if not file.exists():
        return settings
    for line in file.read_text("utf-8", "replace").splitlines():
        setting = re.sub(r"\s*[=:\s]\s*", "=", line.strip(), count=1)
        name, _, value = setting.partition("=")
        if value and not name.startswith(("#", "!")):
            settings[name] = value
    return settings


class NoSpark(Exception):
    """The reason why a Python cannot be run, or has no whole PySpark."""


def _spark_class(python: str) -> str:
    """The command in a Python's PySpark that starts Java classes of Spark.

    Raises NoSpark.
    """
    code = "import pyspark; print(pyspark.__path__[0])"
    try:
        answer = subprocess.run(
            [python, "-c", code],
            capture_output=True,
            # A folder's name, like all else that is printed, may be any bytes.
            errors="surrogateescape",
            check=False,
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSpark(str(error)) from None
    if answer.returncode:
        last_line = answer.stderr.rstrip().rpartition("\n")[2]
        raise NoSpark(last_line or "it says nothing")
    # The last line, as an environment may print others when it starts.
    home = answer.stdout.rstrip().rpartition("\n")[2]
    spark_class = f"{home}/bin/spark-class"
    if not Path(spark_class).exists():
        raise NoSpark(f"{spark_class} is missing")
    return spark_class


def _started_master(
    spark_class: str,
    vm: str,
) -> subprocess.Popen[bytes]:
    words = [spark_class, MASTER, "--host", vm, "--port", str(PORT)]
    return subprocess.Popen(words, env=os.environ | daemon_variables())


def _listens(vm: str, master: subprocess.Popen[bytes]) -> bool:
    """Waits until the master in a VM listens; False if it ends or never does."""
    until_s = time.monotonic() + PATIENCE_S
    while master.poll() is None and time.monotonic() < until_s:
        try:
            socket.create_connection((vm, PORT), timeout=RETRY_S).close()
        except OSError:
            time.sleep(RETRY_S)
        else:
            return True
    return False


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """Ends the master and the remote shells.

    A worker ends with its remote shell, and an executor with its worker.
    """
    for child in reversed(children):
        child.terminate()
    for child in children:
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
