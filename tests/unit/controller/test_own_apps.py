"""Applications as ``ryu-manager`` starts them: options, several, their neighbours, their pages."""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller import openflow13, start_watch
from controller.app_packages import package_folders
from controller.library import PACKAGES, LibraryName
from controller.own_app import OwnApps, OwnFile, UnusableApps
from controller.process import (
    APP_ERROR,
    REMOTE_ERROR,
    ControllerNotStarted,
    ControllerProcess,
    start_controller,
)
from tests.support.own_addresses import free_port
from tests.unit.controller.test_own_app import (
    EXAMPLE,
    LIBRARIES,
    TO_CONTROLLER,
    Listening,
    output_of,
)

HEAD = """\
from PACKAGE.base.app_manager import KIND
from PACKAGE.controller.handler import MAIN_DISPATCHER, set_ev_cls
from PACKAGE.lib import hub
"""
# Asks for what it has been told of: the library's own application answers.
TOPOLOGY = """
from PACKAGE.topology import api, event
class Watcher(KIND):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print("links are looked for:", self.CONF.observe_links)
    @set_ev_cls(event.EventSwitchEnter)
    def entered(self, event):
        switches = [switch.dp.id for switch in api.get_switch(self)]
        print("entered", event.switch.dp.id, "of", switches)
        hub.spawn(self.ask)
    def ask(self):
        print("links", api.get_link(self))
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Applications run as another user, to whom pytest's folders are closed."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def write(folder: Path, library: LibraryName, name: str, code: str) -> str:
    kind = "RyuApp" if library == "ryu" else "OSKenApp"
    text = (HEAD + code).replace("PACKAGE", PACKAGES[library])
    path = folder / name
    path.write_text(text.replace("KIND", kind), encoding="utf-8")
    return str(path)


def started(log: Path, library: str, *options: str) -> ControllerProcess:
    with log.open("a+b") as file:
        general = ("--openflow-port", "0", "--library", library)
        return start_controller(file, *general, *options)


def said(log: Path, pattern: str) -> re.Match[str]:
    """The log's match, once it is there."""
    until_s = time.monotonic() + 60
    while (match := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < until_s, log.read_text()
        time.sleep(0.05)
    return match


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_the_librarys_topology_answers(
    library: LibraryName, tmp_path: Path
) -> None:
    app = write(tmp_path, library, "mine.py", TOPOLOGY)
    log = tmp_path / "log"
    options = ("--app", app, "--app-option=--observe-links")
    with (
        started(log, library, *options) as process,
        Listening(process.openflow_port),
    ):
        said(log, r"links are looked for: True\n")
        said(log, r"entered 1 of \[1\]\n")
        said(log, r"links (\[\]|\{\})\n")


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_an_api_that_only_a_neighbour_imports_answers(
    library: LibraryName, open_folder: Path
) -> None:
    write(
        open_folder,
        library,
        "asking.py",
        "from PACKAGE.topology import api\n",
    )
    code = """
import asking
class Asking(KIND):
    def start(self):
        hub.spawn(self.ask)
        return super().start()
    def ask(self):
        print("switches", asking.api.get_switch(self))
"""
    app = write(open_folder, library, "mine.py", code)
    log = open_folder / "log"
    with started(log, library, "--app", app):
        said(log, r"switches \[\]\n")


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_several_applications_hear_each_others_events(
    library: LibraryName, tmp_path: Path
) -> None:
    source = """
from PACKAGE.controller.event import EventBase
class Ping(EventBase):
    pass
class Source(KIND):
    _EVENTS = [Ping]
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print("executed as", __name__)
    def start(self):
        hub.spawn_after(0.5, self.send_event_to_observers, Ping())
        return super().start()
"""
    heard = """
from source import Ping
class Heard(KIND):
    @set_ev_cls(Ping)
    def ping(self, event):
        print("heard a ping")
"""
    first = write(tmp_path, library, "source.py", source)
    second = write(tmp_path, library, "heard.py", heard)
    log = tmp_path / "log"
    with started(log, library, "--app", first, "--app", second):
        said(log, r"heard a ping\n")
    assert log.read_text().count("executed as source\n") == 1


@pytest.mark.short("error-ryu", "no-class-ryu", "option-ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        ("1 / 0\n", (), "second.py, line 4: ZeroDivisionError"),
        ("x = 1\n", (), "no class in second is a subclass of"),
        (
            "class Mine(KIND):\n    pass\n",
            ("--app-option=--observe-lnks",),
            "options: unrecognized arguments: --observe-lnks",
        ),
    ],
    ids=["error", "no-class", "option"],
)
@pytest.mark.usefixtures("slow_ends")
def test_of_several_the_one_that_is_wrong_is_named(
    library: LibraryName,
    code: str,
    options: tuple[str, ...],
    message: str,
    tmp_path: Path,
) -> None:
    first = write(
        tmp_path, library, "first.py", "class One(KIND):\n    pass\n"
    )
    second = write(tmp_path, library, "second.py", code)
    apps = ("--app", first, "--app", second)
    with pytest.raises(ControllerNotStarted) as caught:
        started(tmp_path / "log", library, *apps, *options)
    assert (caught.value.error, caught.value.exit_code) == (APP_ERROR, 2)
    assert str(caught.value).startswith(message)


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_constructor_that_waits_for_ever_is_refused(
    library: LibraryName, tmp_path: Path
) -> None:
    """The library's own never returns; here a sentence, its line and the stack."""
    code = """
from PACKAGE.topology.api import get_switch
class Asking(KIND):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.switches = get_switch(self)
"""
    app = write(tmp_path, library, "mine.py", code)
    with pytest.raises(ControllerNotStarted) as caught:
        started(tmp_path / "log", library, "--app", app)
    assert str(caught.value).startswith("line 9: the start only waits here")
    assert "in send_request" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_a_start_that_does_something_is_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_watch, "WAIT_S", 0.05)
    monkeypatch.setattr(start_watch, "BUSY_S", 0.0)
    stacks: list[object] = []
    with start_watch.watched_start(
        9, pytest.fail, pytest.fail, stacks.append
    ):
        time.sleep(0.3)
    assert stacks
    monkeypatch.setattr(start_watch, "BUSY_S", 10.0)
    stacks.clear()
    with start_watch.watched_start(
        9, stacks.append, pytest.fail, pytest.fail
    ):
        time.sleep(0.3)
    assert stacks
    # One that computes is told, and refused when it has taken too much.
    monkeypatch.setattr(start_watch, "BUSY_S", 0.0)
    told: list[object] = []
    refused: list[object] = []
    until_s = time.process_time() + 1.0
    with start_watch.watched_start(
        0.2, pytest.fail, refused.append, told.append
    ):
        while not refused and time.process_time() < until_s:
            pass
    assert refused
    assert told


BUSY = """
class Polling(KIND):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.found = False
        while not self.found:
            pass
"""


# Over 12 s of a processor; in this process it is tested above.
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_start_that_computes_without_end_is_refused_with_its_line(
    library: LibraryName, tmp_path: Path
) -> None:
    app = write(tmp_path, library, "mine.py", BUSY)
    heard: list[str] = []
    general = ("--openflow-port", "0", "--library", library)
    options = (*general, "--app-start-s", "12", "--app", app)
    with (tmp_path / "log").open("a+b") as file:  # noqa: SIM117
        with pytest.raises(ControllerNotStarted) as caught:
            start_controller(file, *options, narrate=heard.append)
    assert re.match(
        r"line [89]: the start computes here, after 12 s of a processor",
        str(caught.value),
    )
    assert re.match(r"the controller: line \d: is still starting", heard[0])


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_neighbour_behind_a_closed_folder_is_told_so(
    library: LibraryName, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "inner" / "helper.py").write_text("x = 1\n")
    app = write(closed / "inner", library, "mine.py", "import helper\n")
    with pytest.raises(ControllerNotStarted) as caught:
        started(tmp_path / "log", library, "--app", app)
    text = str(caught.value)
    assert text.startswith(
        "line 4: ModuleNotFoundError: No module named 'help"
    )
    assert "it is beside the application, which runs as nobody" in text
    closed_part = re.search(r"and (\S+) is closed to that user", text)
    assert closed_part is not None
    assert not Path(closed_part[1]).stat().st_mode & 0o001


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_neighbour_may_have_the_name_of_a_module_of_ours(
    library: LibraryName, open_folder: Path
) -> None:
    (open_folder / "jobs.py").write_text("LIMIT = 7\n")
    code = """
import jobs
from controller import PORT
class Mine(KIND):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print("theirs", jobs.LIMIT, PORT)
"""
    app = write(open_folder, library, "mine.py", code)
    (open_folder / "controller.py").write_text("PORT = 5\n")
    log = open_folder / "log"
    with started(log, library, "--app", app) as process:
        said(log, r"theirs 7 5\n")
        with Listening(process.openflow_port) as switch:
            assert switch.came.empty()


PAGES = """
from ryu.app.wsgi import ControllerBase, WSGIApplication, route
from webob import Response
class Pages(ControllerBase):
    @route("x", "/hello", methods=["GET"])
    def hello(self, request, **_):
        return Response(body=b"hello")
class Rest(KIND):
    _CONTEXTS = {"wsgi": WSGIApplication}
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        kwargs["wsgi"].register(Pages, {})
"""


def page(port: int | None, path: str) -> bytes:
    address = f"http://127.0.0.1:{port}{path}"
    with urllib.request.urlopen(address, timeout=60) as answer:
        return bytes(answer.read())


@pytest.mark.slow
@pytest.mark.needs("ryu")
def test_pages_are_served_on_loopback_at_a_port_that_is_told(
    tmp_path: Path,
) -> None:
    """Beside a module of the library's, which has pages too."""
    app = write(tmp_path, "ryu", "mine.py", PAGES)
    port = free_port()
    options = ("--app", app, "--app", "ryu.app.ofctl_rest")
    chosen = f"--app-option=--wsapi-port={port}"
    log = tmp_path / "log"
    with started(log, "ryu", *options, chosen) as process:
        assert process.pages_port == port
        assert page(port, "/hello") == b"hello"
        with Listening(process.openflow_port):
            until_s = time.monotonic() + 60
            while page(port, "/stats/switches") != b"[1]":
                assert time.monotonic() < until_s
        # A second application may not share the port, whoever its user is.
        with pytest.raises(ControllerNotStarted) as caught:
            started(tmp_path / "log2", "ryu", *options, chosen)
        assert str(caught.value).startswith(f"options: wsapi-port {port}: ")
    listens = socket.create_server(("127.0.0.1", 0))
    with listens, started(log, "ryu", *options) as process:
        assert process.pages_port is not None
        assert page(process.pages_port, "/hello") == b"hello"


@pytest.mark.slow
@pytest.mark.needs("os-ken")
def test_os_ken_has_no_pages_and_that_is_said(tmp_path: Path) -> None:
    code = "from PACKAGE.app.wsgi import WSGIApplication\n"
    app = write(tmp_path, "os-ken", "mine.py", code)
    with pytest.raises(ControllerNotStarted) as caught:
        started(tmp_path / "log", "os-ken", "--app", app)
    assert "os-ken has no web server" in str(caught.value)


def test_applications_for_different_libraries_are_refused(
    tmp_path: Path,
) -> None:
    first = tmp_path / "first.py"
    first.write_text("import ryu.base\n")
    apps = OwnApps.read([str(first), "os_ken.topology.switches"], [])
    with pytest.raises(
        UnusableApps, match=r"first.py is for Ryu and os_ken"
    ):
        apps.library(None)


def test_imports_of_modules_beside_it_count_as_its_own(
    tmp_path: Path,
) -> None:
    app = tmp_path / "mine.py"
    app.write_text("from base import Switch\nimport pack.inner\n")
    (tmp_path / "base.py").write_text("import os_ken.lib, mine\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "inner.py").write_text("import ryu.lib.hub\n")
    # One that would never end, and one that is no Python.
    os.mkfifo(tmp_path / "os_ken.py")
    (tmp_path / "pack" / "__init__.py").write_text("def :\n")
    imports = OwnFile.read(app).imports
    assert {"os_ken.lib", "ryu.lib.hub"} <= set(imports)


@pytest.mark.parametrize(
    "text", ["-" * 200_000 + "1", "a." * 100_000 + "a"]
)
def test_a_file_that_is_nested_too_deeply(
    text: str, tmp_path: Path
) -> None:
    deep = tmp_path / "deep.py"
    deep.write_text(text)
    with pytest.raises(ValueError, match=r"deep\.py is nested too deeply"):
        OwnFile.read(deep)
    app = tmp_path / "mine.py"
    app.write_text("import deep\n")
    assert OwnFile.read(app).beside == (deep,)


def test_relative_imports_in_packages_beside_it_count_as_its_own(
    tmp_path: Path,
) -> None:
    files = {
        "mine.py": "import routes.tables.static\n",
        "routes/__init__.py": "from . import paths\nfrom .. import beyond\n",
        "routes/paths.py": "from .tables.base import Table\n",
        "routes/tables/__init__.py": "from .far import FAR\n",
        "routes/tables/base.py": "from ryu.base import app_manager\n",
        "routes/tables/static.py": "from ..ends import END\n",
        "routes/tables/far.py": "import ryu.lib.hub\n",
        "routes/ends.py": "import ryu.lib.mac\n",
        # Modules beside it of the names that the relative imports have.
        "paths.py": "import os_ken\n",
        "far.py": "import os_ken\n",
        "beyond.py": "import os_ken\n",
    }
    for name, code in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    app = OwnFile.read(tmp_path / "mine.py")
    assert {
        *("ryu.base.app_manager", "ryu.lib.hub", "ryu.lib.mac"),
    } <= set(app.imports)
    assert "os_ken" not in app.imports
    assert {str(path.relative_to(tmp_path)) for path in app.beside} == {
        name for name in files if name.startswith("routes/")
    }


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_switches_reach_a_controller_that_runs_already(
    library: LibraryName, tmp_path: Path
) -> None:
    """By a socket of ours; when it ends, and is there again, so are they."""
    log = tmp_path / "log"
    app = ("--app", str(EXAMPLE))
    with started(log, library, *app) as theirs:
        port = theirs.openflow_port
        remote = ("--remote", f"tcp:127.0.0.1:{port}")
        ours = started(tmp_path / "log2", library, *remote)
        with ours, Listening(ours.openflow_port) as switch:
            assert (ours.openflow_port != port, ours.library) == (True, "")
            kind, data = switch.next()
            assert (kind, output_of(data)) == (
                openflow13.OFPT_FLOW_MOD,
                TO_CONTROLLER,
            )
            theirs.stop()
            said_so = socket.create_connection(
                ("127.0.0.1", ours.openflow_port), timeout=60
            )
            with said_so:
                assert said_so.recv(1) == b""
            said(tmp_path / "log2", f"nobody listens at 127.0.0.1:{port}")


@pytest.mark.slow
@pytest.mark.usefixtures("slow_ends")
def test_an_address_where_nobody_listens_is_named(tmp_path: Path) -> None:
    # Held, but nobody listens there.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        remote = ("--remote", f"tcp:127.0.0.1:{port}")
        with pytest.raises(ControllerNotStarted) as caught:
            started(tmp_path / "log", "auto", *remote)
    assert str(caught.value) == (
        f"nobody listens at tcp:127.0.0.1:{port}: Connection refused"
    )
    assert (caught.value.error, caught.value.exit_code) == (REMOTE_ERROR, 3)


def environment(folder: Path) -> Path:
    """A virtual environment with a package, and one with a name of ours."""
    made = folder / "apps"
    venv.create(made, symlinks=True, with_pip=False)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "needed.py").write_text("VALUE = 11\n")
    (packages / "netaddr.py").write_text("VALUE = 12\n")
    return made / "bin" / "python"


@pytest.mark.short("ryu")
@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_packages_of_another_environment_are_found(
    library: LibraryName, open_folder: Path
) -> None:
    python = environment(open_folder)
    code = """
import needed
class Mine(KIND):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        print("needed", needed.VALUE)
"""
    app = write(open_folder, library, "mine.py", code)
    log = open_folder / "log"
    more = ("--app-python", str(python))
    with started(log, library, "--app", app, *more) as process:
        said(log, "needed 11\n")
        with Listening(process.openflow_port) as switch:
            assert switch.alive
    with pytest.raises(
        ControllerNotStarted, match="No module named 'needed'"
    ):
        started(log, library, "--app", app)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "#!/bin/sh\necho '[\"3.8\", []]'\n",
            "is Python 3.8, applications run",
        ),
        ("#!/bin/sh\nexit 7\n", "exit status 7"),
        ("#!/bin/sh\necho hello\n", "Expecting value"),
        ("#!/bin/sh\necho 5\n", "cannot unpack"),
    ],
    ids=["version", "fails", "no-python", "number"],
)
def test_an_interpreter_that_is_of_no_use_is_told_so(
    text: str, message: str, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(text)
    python.chmod(0o755)
    apps = OwnApps.read([], [], str(python))
    with pytest.raises(UnusableApps, match=message) as refused:
        apps.find_packages()
    assert "import json" not in str(refused.value)


def test_an_environment_may_print_as_it_starts(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\necho Welcome\nexec {sys.executable} $@\n"
    )
    python.chmod(0o755)
    assert package_folders(str(python)) == package_folders(sys.executable)
