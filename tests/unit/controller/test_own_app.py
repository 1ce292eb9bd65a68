"""A person's application as a process of its own, on each library, with fake switches."""

from __future__ import annotations

import errno
import os
import queue
import re
import shutil
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from controller import openflow13
from controller.flow_rules import Match
from controller.library import PACKAGES, LibraryName
from controller.own_app import (
    MEMORY_MAX_BYTES,
    THREADS_MAX,
    OwnApps,
    OwnFile,
)
from controller.process import (
    APP_ERROR,
    ControllerNotStarted,
    ControllerProcess,
    start_controller,
)
from tests.support.fake_openflow import FakeConnection
from tests.support.fake_switch import FakeSwitch

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "learning_switch.py"
LIBRARIES = [
    pytest.param("ryu", marks=pytest.mark.needs("ryu")),
    pytest.param("os-ken", marks=pytest.mark.needs("os-ken")),
]
PACKET_IN, PACKET_OUT = 10, 13
FLOOD, TO_CONTROLLER = 0xFFFFFFFB, 0xFFFFFFFD
_PACKET_IN = struct.Struct("!IHBBQ")

APP = """\
from PACKAGE.base import app_manager
from PACKAGE.controller import ofp_event
from PACKAGE.controller.handler import CONFIG_DISPATCHER, set_ev_cls
BEFORE
class Mine(app_manager.KIND):
    OFP_VERSIONS = [4]
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        START
    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        HANDLE
"""


def written(
    folder: Path,
    library: str,
    before: str = "",
    start: str = "pass",
    handle: str = "pass",
) -> Path:
    """An application in a file; its own lines are 4, 9 and 12."""
    package = "ryu" if library == "ryu" else "os_ken"
    kind = "RyuApp" if library == "ryu" else "OSKenApp"
    code = APP.replace("PACKAGE", package).replace("KIND", kind)
    code = (
        code.replace("BEFORE", before)
        .replace("START", start)
        .replace("HANDLE", handle)
    )
    path = folder / "mine.py"
    path.write_text(code, encoding="utf-8")
    return path


class Listening(FakeConnection):
    """A switch that keeps what it is told to do."""

    def __init__(self, port: int) -> None:
        self.came: queue.Queue[tuple[int, bytes]] = queue.Queue()
        super().__init__(FakeSwitch(1, (1, 2, 3)), port)

    def _replies(self, kind: int, xid: int, data: bytes) -> Iterator[bytes]:
        if kind in (openflow13.OFPT_FLOW_MOD, PACKET_OUT):
            self.came.put((kind, data))
        else:
            yield from super()._replies(kind, xid, data)

    def next(self) -> tuple[int, bytes]:
        return self.came.get(timeout=60)

    def packet_in(self, in_port: int, source: int, target: int) -> None:
        frame = (
            bytes([2, 0, 0, 0, 0, target, 2, 0, 0, 0, 0, source])
            + b"\x08\x00"
            + bytes(46)
        )
        body = _PACKET_IN.pack(
            openflow13.OFP_NO_BUFFER, len(frame), 0, 0, 0
        )
        body += (
            openflow13.encode_match(Match(in_port=in_port))
            + bytes(2)
            + frame
        )
        self._socket.sendall(openflow13.message(PACKET_IN, 5, body))


def output_of(data: bytes) -> int:
    """The port of the one output action that a message ends in, or has before its frame."""
    found = data.index(struct.pack("!HH", 0, 16))
    return int(struct.unpack_from("!I", data, found + 4)[0])


def started(
    app: Path, library: str, log: Path, *more: str
) -> ControllerProcess:
    with log.open("a+b") as file:
        options = (
            "--openflow-port",
            "0",
            "--library",
            library,
            "--app",
            str(app),
            *more,
        )
        return start_controller(file, *options)


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_example_learns_and_floods_what_it_does_not_know(
    library: str, tmp_path: Path
) -> None:
    with (
        started(EXAMPLE, library, tmp_path / "log") as process,
        Listening(process.openflow_port) as switch,
    ):
        assert (process.library, process.api_port) == (library, 0)
        kind, data = switch.next()
        assert (kind, output_of(data)) == (
            openflow13.OFPT_FLOW_MOD,
            TO_CONTROLLER,
        )
        switch.packet_in(in_port=1, source=7, target=8)
        kind, data = switch.next()
        assert (kind, output_of(data)) == (PACKET_OUT, FLOOD)
        switch.packet_in(in_port=2, source=8, target=7)
        kind, data = switch.next()
        assert (kind, output_of(data)) == (openflow13.OFPT_FLOW_MOD, 1)
        assert bytes([2, 0, 0, 0, 0, 7]) in data
        kind, data = switch.next()
        assert (kind, output_of(data)) == (PACKET_OUT, 1)


@pytest.mark.slow
@pytest.mark.needs("ryu", "os-ken")
@pytest.mark.parametrize("library", ["ryu", "os-ken"])
def test_the_library_is_the_one_that_it_imports(
    library: str, tmp_path: Path
) -> None:
    other = "os-ken" if library == "ryu" else "ryu"
    log = tmp_path / "log"
    with started(
        written(tmp_path, library, before="print('hello')"), other, log
    ) as process:
        assert process.library == library
        # What it prints is in its log at once.
        assert "hello\n" in log.read_text()


@pytest.mark.short("import-ryu", "start-ryu", "exit-ryu", "class-ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            {"before": "import networkz"},
            "line 4: ModuleNotFoundError: No module named 'networkz'",
        ),
        (
            {"start": "nowhere"},
            "line 9: NameError: name 'nowhere' is not defined",
        ),
        ({"before": "raise SystemExit(7)"}, "line 4: SystemExit: 7"),
        (
            {"before": "del set_ev_cls"},
            "line 10: NameError: name 'set_ev_cls' is not defined",
        ),
    ],
    ids=["import", "start", "exit", "class"],
)
@pytest.mark.usefixtures("slow_ends")
def test_one_that_does_not_start_is_explained(
    library: str, parts: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ControllerNotStarted) as caught:
        started(
            written(tmp_path, library, **parts), library, tmp_path / "log"
        )
    assert (caught.value.error, caught.value.exit_code) == (APP_ERROR, 2)
    assert str(caught.value) == message
    assert (
        "Traceback (most recent call last)"
        in (tmp_path / "log").read_text()
    )


FORGED = """\
import json, os, sys
place = sys.argv.index("--ready-fd") + 1
os.write(int(sys.argv[place]), (json.dumps(LINE) + "\\n").encode())
os._exit(3)
"""


@pytest.mark.short("exit-ryu", "forged-ryu", "list-ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os._exit(3)", "the controller ended with 3"),
        (
            FORGED.replace(
                "LINE", '{"error": "port-taken", "message": "no"}'
            ),
            "no",
        ),
        (FORGED.replace("LINE", "[" * 5 + "]" * 5), "ended with 3"),
    ],
    ids=["exit", "forged", "list"],
)
@pytest.mark.usefixtures("slow_ends")
def test_its_exit_code_and_its_lines_say_nothing_of_the_machine(
    library: LibraryName, code: str, message: str, tmp_path: Path
) -> None:
    app = tmp_path / "mine.py"
    app.write_text(f"import {PACKAGES[library]}\n{code}")
    with pytest.raises(ControllerNotStarted, match=message) as caught:
        started(app, library, tmp_path / "log")
    assert (caught.value.error, caught.value.port) == (APP_ERROR, None)


@pytest.mark.short("no-class-ryu", "version-ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import PACKAGE.base.app_manager",
            "no class in mine is a subclass of",
        ),
        (
            "from PACKAGE.base.app_manager import KIND\nclass Mine(KIND):\n  OFP_VERSIONS = [1]\n",
            "Mine.OFP_VERSIONS lacks OpenFlow 1.3, which the bridges speak",
        ),
    ],
    ids=["no-class", "version"],
)
def test_one_that_is_no_application_for_these_bridges(
    library: LibraryName, code: str, message: str, tmp_path: Path
) -> None:
    app = tmp_path / "mine.py"
    kind = "RyuApp" if library == "ryu" else "OSKenApp"
    app.write_text(
        code.replace("PACKAGE", PACKAGES[library]).replace("KIND", kind)
    )
    with pytest.raises(ControllerNotStarted, match=message):
        started(app, library, tmp_path / "log")


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_an_error_in_a_handler_is_in_the_log_and_not_the_end(
    library: str, tmp_path: Path
) -> None:
    app = written(
        tmp_path,
        library,
        handle="print(event.msg.datapath.id); no_such_name",
    )
    log = tmp_path / "log"
    with started(app, library, log) as process:
        for _ in range(2):
            with Listening(process.openflow_port):
                while (
                    "NameError: name 'no_such_name' is not defined"
                    not in log.read_text()
                ):
                    assert process.process.poll() is None
        assert process.process.poll() is None


LEAVES = """\
import os, socket, subprocess
try:
    socket.socket(40, socket.SOCK_STREAM)  # AF_VSOCK
except OSError as error:
    print("no socket:", error.errno)
for folder in ("/tmp", "/dev/shm"):
    open(folder + "/NAME", "w").close()
for path in ("/var/NAME", __file__):
    try:
        open(path, "a").close()
    except OSError as error:
        print("refused:", error.strerror)
print("variables:", *os.environ.values())
print("uid", os.getuid())
print("processes:", *[pid for pid in os.listdir("/proc") if pid.isdigit()])
subprocess.Popen(["sleep", "86399.PID"], start_new_session=True)
"""


def sleepers() -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if f"86399.{os.getpid()}" in (process.info["cmdline"] or ())
    ]


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_confined_one_leaves_no_file_and_no_process(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-root")
    name = f"hosenet-left-{os.getpid()}"
    app = written(
        tmp_path,
        library,
        before=LEAVES.replace("NAME", name).replace(
            "PID", str(os.getpid())
        ),
    )
    app.chmod(0o666)
    log = tmp_path / "log"
    options = ("--library", library, "--app", str(app), "--uid", "61333")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        log.open("a+b") as file,
        start_controller(
            *(file, *options),
            held={"--listen-fd": listener.fileno()},
            confined_to=[tmp_path],
        ) as process,
    ):
        said = log.read_text()
        assert said.count("refused: ") == 2, said
        assert "uid 61333" in said
        assert f"no socket: {errno.EAFNOSUPPORT}" in said
        assert "variables: " in said
        assert "of-root" not in said
        (shown,) = re.findall("^processes: (.*)$", said, re.MULTILINE)
        assert str(os.getpid()) not in shown.split()
        assert process.user == "61333"
        assert len(sleepers()) == 1
        assert process.openflow_port == listener.getsockname()[1]
    until_s = time.monotonic() + 60
    while sleepers():
        assert time.monotonic() < until_s
        time.sleep(0.05)
    for folder in ("tmp", "dev/shm"):
        assert not (Path("/") / folder / name).exists()


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_unprivileged_and_its_file_need_not_be_readable(
    library: str, tmp_path: Path
) -> None:
    """Root reads the file; everything in it runs as the user who called sudo, or nobody."""
    tmp_path.chmod(0o700)
    said = "import os; print('ids', *os.getresuid(), *os.getresgid(), os.getgroups())"
    app = written(tmp_path, library, before=said)
    app.chmod(0o600)
    log = tmp_path / "log"
    with started(app, library, log) as process:
        status = Path(f"/proc/{process.process.pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "CapEff:\t0000000000000000" in status
    (line,) = [
        each
        for each in log.read_text().splitlines()
        if each.startswith("ids ")
    ]
    assert "0" not in line.split()[1:7]
    assert line.endswith("[]")


FORKS = """
import os, signal
children = []
try:
    while len(children) < 200:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    print("forks", len(children))
except BlockingIOError:
    print("refused after", len(children))
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""
LIMITS = "import resource as r; print('limits', *(r.getrlimit(each)[1] for each in (2, 6)))"


@pytest.mark.slow
@pytest.mark.needs("ryu")
def test_it_cannot_fork_without_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    # An application shares its limit with whatever else its user runs, and what ends meanwhile
    # makes room. As root the test takes a user that runs nothing else.
    if os.geteuid() == 0:
        others = 0
        user: tuple[str, ...] = ("--uid", "61334")
    else:
        others = sum(map(threads, psutil.process_iter()))
        user = ()
    with started(written(tmp_path, "ryu", before=FORKS), "ryu", log, *user):
        (refused,) = re.findall(
            r"^refused after (\d+)$", log.read_text(), re.MULTILINE
        )
    assert 0 < int(refused) <= THREADS_MAX["ryu"] + others


def threads(process: psutil.Process) -> int:
    """Those of a process of this user's, else none."""
    try:
        return (
            process.num_threads()
            if process.uids().real == os.getuid()
            else 0
        )
    except psutil.Error:
        return 0


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_it_cannot_take_all_memory(
    library: LibraryName, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    app = written(
        tmp_path,
        library,
        before=LIMITS,
        start="self.most = b'x' * (1 << 30)",
    )
    with pytest.raises(
        ControllerNotStarted, match=r"^line 9: MemoryError$"
    ):
        started(app, library, log)
    ((data, threads),) = re.findall(
        r"^limits (\d+) (\d+)$", log.read_text(), re.MULTILINE
    )
    assert int(data) == MEMORY_MAX_BYTES
    assert (
        THREADS_MAX[library] < int(threads) < THREADS_MAX[library] + 10_000
    )


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.parametrize("library", LIBRARIES)
def test_where_memory_runs_short_it_is_killed_first(
    library: str, tmp_path: Path
) -> None:
    with started(
        written(tmp_path, library), library, tmp_path / "log"
    ) as process:
        assert (
            Path(f"/proc/{process.process.pid}/oom_score_adj").read_text()
            == "1000\n"
        )


def test_names_that_a_file_imports_wherever_it_does(tmp_path: Path) -> None:
    app = tmp_path / "mine.py"
    app.write_text(
        "import ryu.lib.mac as mac, json\n"
        "def later():\n    from ryu.ofproto import ofproto_v1_3 as o, ether\n"
        "from . import near\n"
    )
    assert OwnFile.read(app).imports == (
        *("ryu.lib.mac", "json"),
        *("ryu.ofproto", "ryu.ofproto.ofproto_v1_3", "ryu.ofproto.ether"),
    )


def test_files_of_one_name_are_several_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(sys.modules)
    monkeypatch.setattr(sys, "modules", before)
    names = []
    for folder in ("a", "b", "c", "b"):
        file = tmp_path / folder / "same_name.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"place = {folder!r}\n")
        names.append(OwnFile.read(file).load())
    assert names[1] == names[3]
    assert len(set(names)) == 3
    assert [before[name].place for name in names] == ["a", "b", "c", "b"]


def test_an_error_is_told_by_the_last_line_of_the_file_on_its_way(
    tmp_path: Path,
) -> None:
    app = OwnApps.read([str(written(tmp_path, "ryu"))], [])
    try:
        code = compile(
            "def f():\n  g()\ndef g():\n  int('x')\nf()\n",
            str(app.files[0].path),
            "exec",
        )
        exec(code, {})  # noqa: S102 - an error with lines of the file
    except ValueError as error:
        told = app.explained(error)
    assert (
        told
        == "line 4: ValueError: invalid literal for int() with base 10: 'x'"
    )
    assert app.explained(KeyError("elsewhere")) == "KeyError: 'elsewhere'"
