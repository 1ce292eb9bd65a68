"""Spark's head against processes that stand for Spark's: order, settings, and the end of all."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from jobs.live import spark_head
from tests.support.own_addresses import free_port

SPARK_CLASS = """#!{python}
import json, os, socket, sys, time
from pathlib import Path
folder = Path({folder!r})
kind = sys.argv[1].rpartition(".")[2]
words = sys.argv[1:]
# Renamed when it is whole: the driver ends all as soon as the files are there.
part = folder.with_name(f"{{kind}}-{{os.getpid()}}")
part.write_text(json.dumps([words, os.environ.get("SPARK_DAEMON_MEMORY")]))
part.rename(folder / part.name)
if kind == "Master" and {fails}:
    sys.exit("JAVA_HOME is not set")
if kind == "Master" and {listens}:
    port = int(words[words.index("--port") + 1])
    listener = socket.create_server(("localhost", port))
time.sleep(600)
"""
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then
    echo an environment begins; echo {home}; echo "ModuleNotFoundError: No module" >&2; exit {code}
fi
exec {python} "$@"
"""
# As the agents' remote shell: a process group that ends with it.
SHELL = '#!/bin/sh\nshift\nexec sh -c "$*"\n'
DRIVER = """
import json, os, sys, time
from pathlib import Path
folder = Path({folder!r})
while len(list(folder.glob("Worker-*"))) < int(sys.argv[2]):
    time.sleep(0.01)
seen = sorted(path.name.partition("-")[0] for path in folder.glob("*-*"))
names = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "HOSENET_RANK")
Path("seen").write_text(json.dumps([seen, *map(os.environ.get, names)]))
code = int(sys.argv[3])
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o700)
    return str(path)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The head's words up to the program's: so many workers, and an exit code."""
    return made(tmp_path, monkeypatch)


def made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    listens: bool = True,
    fails: bool = False,
    code: int = 0,
) -> list[str]:
    # A folder's name may have a blank.
    home, kept = tmp_path / "my spark", tmp_path / "kept"
    (home / "bin").mkdir(parents=True)
    kept.mkdir()
    text = SPARK_CLASS.format(
        python=sys.executable,
        folder=str(kept),
        listens=listens,
        fails=fails,
    )
    script(home / "bin" / "spark-class", text)
    python = script(
        tmp_path / "python",
        PYTHON.format(home=home, code=code, python=sys.executable),
    )
    script(tmp_path / "spark-driver", DRIVER.format(folder=str(kept)))
    monkeypatch.setattr(spark_head, "PORT", free_port())
    monkeypatch.setattr(spark_head, "RETRY_S", 0.01)
    monkeypatch.chdir(tmp_path)
    return [
        script(tmp_path / "shell", SHELL),
        "localhost,localhost,localhost",
        "2",
        str(tmp_path / "rank-start"),
        python,
    ]


def settings_of(arguments: str) -> dict[str, str]:
    """The settings that ``spark-submit`` would have."""
    words = shlex.split(arguments)
    settings = {}
    for flag, word in pairwise(words):
        if flag == "--conf":
            name, _, value = word.partition("=")
            settings[name] = value
    return settings


def test_workers_are_in_all_vms_but_the_drivers(
    words: list[str], tmp_path: Path
) -> None:
    assert spark_head.main([*words, "2", "3"]) == 3
    text = (tmp_path / "seen").read_text()
    seen, arguments, python, rank = json.loads(text)
    assert seen == ["Master", "Worker", "Worker"]
    assert (python, rank) == (words[4], "0")
    assert arguments.startswith(
        f"--master spark://localhost:{spark_head.PORT} --conf "
    )
    assert arguments.endswith(" pyspark-shell")
    settings = settings_of(arguments)
    assert settings["spark.executor.cores"] == "2"
    assert settings["spark.cores.max"] == "4"


def test_a_driver_that_a_signal_ended_has_a_shells_exit_code(
    words: list[str],
) -> None:
    assert spark_head.main([*words, "2", "-9"]) == 137


def test_the_only_vm_has_a_worker_too(words: list[str]) -> None:
    words[1] = "localhost"
    assert spark_head.main([*words, "1", "0"]) == 0


def test_daemons_have_their_settings_and_end_with_the_driver(
    words: list[str], tmp_path: Path
) -> None:
    assert spark_head.main([*words, "2", "0"]) == 0
    daemons = list((tmp_path / "kept").iterdir())
    assert len(daemons) == 3
    for path in daemons:
        kind, _, pid = path.name.partition("-")
        assert not psutil.pid_exists(int(pid))
        said, memory = json.loads(path.read_text())
        assert memory == spark_head.DAEMON_MEMORY
        assert said[said.index("--host") + 1] == "localhost"
        if kind == "Worker":
            assert said[-1] == f"spark://localhost:{spark_head.PORT}"
            assert said[said.index("--cores") + 1] == "2"


def test_settings_of_the_jobs_files_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = settings_of(spark_head.driver_settings("vm0", 3, 1))
    assert before["spark.executor.memory"] == spark_head.MEMORY
    (tmp_path / "spark-defaults.conf").write_text(
        "# of ours\n\nspark.executor.memory   1g\n"
        "spark.executor.extraJavaOptions -Da=b  -Dc='d'\nalone\n"
    )
    after = settings_of(spark_head.driver_settings("vm0", 3, 1))
    assert after == before | {
        "spark.executor.memory": "1g",
        "spark.executor.extraJavaOptions": "-Da=b  -Dc='d'",
    }


@pytest.mark.parametrize(
    "line",
    [
        "spark.executor.memory 1g",
        "spark.executor.memory\t1g",
        "spark.executor.memory=1g",
        "spark.executor.memory = 1g",
        "  spark.executor.memory:1g ",
    ],
)
def test_a_setting_is_written_as_in_sparks_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spark-defaults.conf").write_text(
        f"! of ours\n{line}\nspark.a\t-Da=b -Dc=d\n"
    )
    settings = settings_of(spark_head.driver_settings("vm0", 3, 1))
    assert settings["spark.executor.memory"] == "1g"
    assert settings["spark.a"] == "-Da=b -Dc=d"
    assert "!" not in settings


def test_settings_in_another_encoding_are_read_as_by_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which replaces what is no UTF-8."""
    monkeypatch.chdir(tmp_path)
    text = "# für alle\nspark.executor.memory 1g\nspark.a ä\n"
    (tmp_path / "spark-defaults.conf").write_text(text, "latin-1")
    settings = settings_of(spark_head.driver_settings("vm0", 3, 1))
    assert settings["spark.executor.memory"] == "1g"
    assert settings["spark.a"] == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("executors", ["0", "01"])
def test_what_executors_print_is_followed(
    tmp_path: Path, executors: str
) -> None:
    for number in executors:
        folder = tmp_path / spark_head.WORK_FOLDER / "app-1" / number
        folder.mkdir(parents=True)
        (folder / "stdout").write_text("printed\n")
        (folder / "stderr").write_text("complained\n")
    following = psutil.Popen(
        ["sh", "-c", spark_head.log_command()],
        cwd=tmp_path, stdout=-1, text=True,
    )  # fmt: skip
    with following:
        lines = [following.stdout.readline() for _ in executors * 2]
        following.terminate()
    printed = ["complained\n", "printed\n"]
    assert sorted(lines) == sorted(printed * len(executors))


def test_a_master_that_does_not_come_is_waited_for_in_vain(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = made(tmp_path, monkeypatch, listens=False)
    monkeypatch.setattr(spark_head, "PATIENCE_S", 0.3)
    # A Python may take longer to start than they are waited for.
    spark_class = str(tmp_path / "my spark/bin/spark-class")
    monkeypatch.setattr(spark_head, "_spark_class", lambda _: spark_class)
    assert spark_head.main([*words, "2", "0"]) == spark_head.NO_MASTER
    assert "Spark's master does not listen" in capsys.readouterr().err
    assert not (tmp_path / "seen").exists()


def test_a_master_that_has_ended_is_not_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = made(tmp_path, monkeypatch, fails=True)
    begin_s = time.monotonic()
    assert spark_head.main([*words, "2", "0"]) == spark_head.NO_MASTER
    assert time.monotonic() - begin_s < spark_head.PATIENCE_S
    assert "Spark's master does not listen" in capsys.readouterr().err


def test_a_pyspark_without_spark_is_told(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of ``pip install pyspark-client``."""
    spark_class = tmp_path / "my spark/bin/spark-class"
    spark_class.unlink()
    assert spark_head.main([*words, "2", "0"]) == spark_head.NO_SPARK
    sentence = f"{words[4]} has no PySpark: {spark_class} is missing\n"
    assert capsys.readouterr().err == sentence


def test_a_python_may_print_other_encodings_as_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder's name may be in one, too."""
    home = tmp_path / os.fsdecode("spark für".encode("latin-1"))
    (home / "bin").mkdir(parents=True)
    spark_class = script(home / "bin" / "spark-class", "")
    text = f"#!/bin/sh\necho 'ein gro\xdfes Modul'\necho '{home}'\n"
    python = tmp_path / "python"
    python.write_bytes(text.encode("latin-1", "surrogateescape"))
    python.chmod(0o700)
    assert spark_head._spark_class(str(python)) == spark_class


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (True, "ModuleNotFoundError: No module"),
        (False, "No such file or directory: '/nowhere/python'"),
    ],
)
def test_a_python_without_pyspark_is_told_with_its_last_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    there: bool,
    why: str,
) -> None:
    words = made(tmp_path, monkeypatch, code=1)
    if not there:
        words[4] = "/nowhere/python"
    assert spark_head.main([*words, "2", "0"]) == spark_head.NO_SPARK
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{words[4]} has no PySpark: ")
    assert line.endswith(why)
    assert not list((tmp_path / "kept").iterdir())
