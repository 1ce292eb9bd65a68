"""Impure decisions of a policy or embedder from outside are refused when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli.main import run
from testbed.plugin_source import check_source, impure_uses
from testbed.plugins import PluginError, from_file

HEAD = """import random, time
import numpy as np
class Mine:
    name = "mine"
    def decide(self, view, event):
"""
"""A policy whose decision begins at line 6."""

IMPURE = {
    "time.time()": "reads the clock (time.time, 6)",
    "from time import monotonic as now\nnow()": "reads the clock (time.monotonic, 7)",
    "import datetime\ndatetime.datetime.now()": "reads the clock (datetime.datetime.now, 7)",
    "from datetime import date\ndate.today()": "reads the clock (datetime.date.today, 7)",
    "time.clock_gettime_ns(1)": "reads the clock (time.clock_gettime_ns, 6)",
    "time.localtime()": "reads the clock (time.localtime, 6)",
    "time.strftime('%H')": "reads the clock (time.strftime, 6)",
    "sorted([1], key=lambda _: time.time())": "reads the clock (time.time, 6)",
    "map(time.perf_counter, ())": "reads the clock (time.perf_counter, 6)",
    "__import__('time').time()": "reads the clock (time.time, 6)",
    "time.sleep(1000)": "waits (time.sleep, 6)",
    "random.shuffle([1, 2])": "draws random numbers (random.shuffle, 6)",
    "random.Random().random()": "draws random numbers (random.Random, 6)",
    "import secrets\nsecrets.token_hex()": "draws random numbers (secrets.token_hex, 7)",
    "import uuid\nuuid.uuid4()": "draws random numbers (uuid.uuid4, 7)",
    "np.random.rand()": "draws random numbers (numpy.random.rand, 6)",
    "np.random.default_rng()": "draws random numbers (numpy.random.default_rng, 6)",
    "open('/etc/hostname')": "does input or output (open, 6)",
    "np.savez('x')": "does input or output (numpy.savez, 6)",
    "print('here')": "does input or output (print, 6)",
    "import sys\nsys.stderr.write('x')": "does input or output (sys.stderr.write, 7)",
    "import os\nos.listdir('/')": "does input or output (os.listdir, 7)",
    "import os.path\nos.path.exists('/')": "does input or output (os.path.exists, 7)",
    "from pathlib import Path\nPath('x').read_text()": "does input or output (?.read_text, 7)",
    "import subprocess\nsubprocess.run(['true'])": "does input or output (subprocess.run, 7)",
    "import threading\nthreading.Thread()": (
        "starts a thread or a process (threading.Thread, 7)"
    ),
    "def rank(job): return time.time()\nsorted(view, key=rank)": (
        "reads the clock (time.time, 6)"
    ),
    "self.later()": "reads the clock (time.time, 9)",
}
"""Bodies of decide, and what is found there: action, name and line."""

PURE = (
    "random.Random(3).random()",
    "np.random.default_rng(3).random()",
    "time.strftime('%H', time.gmtime(view.now_s))",
    "import datetime\ndatetime.datetime(2026, 1, 1).isoformat()",
    "import os\nos.path.join('a', 'b')",
    "generator: np.random.Generator = self.generator",
    "'random.random()  time.time()'",
    "for socket in view.sockets: socket.close",
    "open = sorted(view)\nopen.pop()",
    "list(map(lambda random: random.random(), view))",
    "open = set(view)\ndef fits(job): return job in open\nfilter(fits, view)",
    "from .random import pick\npick(view)",
    "from . import secrets\nsecrets.choice(view)",
)
NOT_DECIDING = """
    def later(self):
        return time.time()
"""
CONSTRUCTOR = """
    def __init__(self, embedder):
        self.text = open('/etc/hostname').read()
        self.load()
    def load(self):
        print(time.time())
"""


def found_in(body: str, rest: str = "") -> list[str]:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    text = f"{HEAD}{lines}{rest}"
    uses = impure_uses({Path("mine.py"): text.encode()})
    return [f"{use.action} ({use.name}, {use.line})" for use in uses]


@pytest.mark.parametrize(
    ("body", "found"), IMPURE.items(), ids=list(IMPURE)
)
def test_an_impure_use_is_found_at_its_line(body: str, found: str) -> None:
    assert found_in(body, NOT_DECIDING) == [found]


@pytest.mark.parametrize("body", PURE)
def test_what_is_pure_is_let_be(body: str) -> None:
    assert found_in(body, NOT_DECIDING) == []


def test_a_constructor_may_read_files_and_clocks() -> None:
    assert found_in("return []", CONSTRUCTOR) == []


@pytest.mark.parametrize("kind", ["", ": object"])
def test_a_lambda_that_is_assigned_to_a_name_is_looked_at(
    kind: str,
) -> None:
    rest = f"    empty: int\nrank{kind} = lambda job: random.random()\n"
    assert found_in("sorted(view, key=rank)", rest) == [
        "draws random numbers (random.random, 8)"
    ]


def test_what_a_decision_calls_in_another_file_is_looked_at() -> None:
    main = "from beside import rank\nclass Mine:\n    def decide(self, v, e): rank(v)\n"
    beside = "import time\ndef rank(v): return time.time()\ndef unused(): print()\n"
    texts = {
        Path("mine.py"): main.encode(),
        Path("beside.py"): beside.encode(),
    }
    (use,) = impure_uses(texts)
    assert (use.file, use.line, use.name) == (
        Path("beside.py"),
        2,
        "time.time",
    )


def test_decisions_of_other_classes_do_not_count() -> None:
    text = (
        HEAD
        + "        return []\nclass Other(Mine):\n    def decide(self, v, e): time.time()\n"
    )
    texts = {Path("mine.py"): text.encode()}
    assert list(impure_uses(texts, {"Mine"})) == []
    assert len(list(impure_uses(texts, {"Mine", "Other"}))) == 1


@pytest.mark.parametrize("name", ["decide", "price", "embed"])
def test_a_function_outside_classes_may_have_a_decisions_name(
    name: str,
) -> None:
    text = (
        "import time\n"
        f"def {name}(view): return time.time()\n"
        "class Mine:\n"
        f"    def decide(self, view, event): return {name}(view)\n"
    )
    (use,) = impure_uses({Path("mine.py"): text.encode()}, {"Mine"})
    assert use.line == 2


def test_uses_are_in_the_order_of_their_lines() -> None:
    body = "if event:\n    print(1)\nprint(2)\nself.later()"
    assert [
        each.rpartition(" ")[2] for each in found_in(body, NOT_DECIDING)
    ] == [
        "7)",
        "8)",
        "12)",
    ]


def test_a_long_sum_does_not_end_the_check() -> None:
    rest = f"TABLE = {' + '.join(['1'] * 1500)}\n"
    assert found_in("print()", rest) == ["does input or output (print, 6)"]


def test_a_file_that_is_no_python_is_left_to_the_loader() -> None:
    assert list(impure_uses({Path("mine.py"): b"def ("})) == []


EXPERIMENT = """\
name: impure
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [{class: "./mine.py:Mine"}]
workload:
  kind: jobs
  jobs:
    - {id: a, at: 0 s, vms: 2, bandwidth: 100 Mbit/s, duration: 10 s}
"""


def test_an_experiment_with_an_impure_policy_is_refused_with_all_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "impure.yaml"
    file.write_text(EXPERIMENT, "utf-8")
    policy = tmp_path / "mine.py"
    policy.write_text(
        f"{HEAD}        time.time()\n        print()\n        return []\n",
        "utf-8",
    )
    assert run(["validate", str(file)]) == 2
    error = capsys.readouterr().err
    assert (
        f"{policy}:6:9: policies[0].class: a decision reads the clock (time.time)"
        " (also in line 7): a policy knows the time by view.now_s"
    ) in error


def test_a_line_of_another_file_is_named_with_that_file(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "mine.py"
    body = "        time.time()\n        rank()\n        print()\n"
    policy.write_text(f"from beside import rank\n{HEAD}{body}", "utf-8")
    beside = tmp_path / "beside.py"
    beside.write_text("def rank():\n    print()\n", "utf-8")
    loaded = from_file(policy, "Mine", "mine.py:Mine")
    with pytest.raises(PluginError) as refused:
        check_source(loaded)
    assert (refused.value.file, refused.value.line) == (policy, 7)
    assert "(also in line 9, beside.py:2)" in refused.value.reason
