"""The page in a real Chromium: content, live updates, replay, keyboard, widths and
colours, what it says of troubles.
"""

from __future__ import annotations

import asyncio
import csv
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import pytest

from testbed.cli.main import run
from testbed.record.folder import EVENTS
from testbed.sweeps.sweep_comparison import is_sweep
from testbed.web.followed_run import FollowedFolder
from testbed.web.followed_sweep import FollowedSweep
from testbed.web.page_server import PageServer, serve_page
from testbed.web.shared_page import shared_page
from tests.support.browser import Browser, browser
from tests.unit.record import sample
from tests.unit.record.written import write_run

pytestmark = [pytest.mark.needs("browser"), pytest.mark.slow]

TOKEN = "a-token-of-the-tests"  # noqa: S105
HOUR_S = 3_600
FRAMES_AT_ONCE = 100
MOST_MB = 200
EXPERIMENT = """\
name: watched
seed: 1
topology: {kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}
policies: [vc]
failures:
  - {at: 2 s, link: server 15 - edge 7, lasts: 20 s}
workload:
  kind: jobs
  jobs:
    - {id: first, at: 0 s, vms: 4, bandwidth: 400 Mbit/s, duration: 6 s}
    - {id: second, at: 1 s, vms: 6, bandwidth: 250 Mbit/s, duration: 8 s}
    - {id: too-much, at: 3 s, vms: 32, bandwidth: 1 Mbit/s, duration: 5 s}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("watched")
    file = base / "watched.yaml"
    file.write_text(EXPERIMENT)
    assert run(["simulate", str(file), "--out", str(base / "runs")]) == 0
    (folder,) = (base / "runs").iterdir()
    return folder


@pytest.fixture(scope="module")
def page(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


class Served:
    """A server in a thread of its own, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.page = PageServer(TOKEN)
        if is_sweep(folder):
            self.page.sources.append(FollowedSweep(folder))
        else:
            self.page.folder = FollowedFolder(folder)
        self.moved_s = 1_000.0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0)
        self.port = self._listening.getsockname()[1]
        self.link = f"http://127.0.0.1:{self.port}/#{TOKEN}"
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        serving = serve_page(self.page, self._listening, self._stop)
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(serving,)
        )
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function in the server's thread, and waits for its end."""

        async def called() -> None:
            function()

        asyncio.run_coroutine_threadsafe(called(), self._loop).result(60)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()
            self._listening.close()


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    server = Served(folder)
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.short("400-light", "1280-dark")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_content_at_widths_and_in_colours(
    page: Browser, folder: Path, width: int, dark: bool
) -> None:
    with served(folder) as server:
        page.look(width, dark=dark)
        page.open(server.link)
        text = page.wait_for("At its end")
        for said in (
            "watched", "simulated, policy vc, seed 1", "2 finished",
            "1 rejected", "Rejections", "Failures and other incidents",
            "is lost", "share [%]", "time [s]", "Servers over time",
        ):  # fmt: skip
            drawn = page.script(
                "return document.body.textContent.includes(arguments[0])",
                said,
            )
            # Axes are drawn by uPlot, in a picture.
            assert drawn or said in text or said.endswith("]")
        assert page.script(
            "return document.documentElement.scrollWidth <= innerWidth"
        )
        assert page.overlapping_texts() == []
        assert page.violations() == []
        assert page.errors() == []


@pytest.mark.short("400")
@pytest.mark.parametrize("width", [400, 1280])
def test_servers_over_time_have_tiers_and_preemptions(
    page: Browser, tmp_path: Path, width: int
) -> None:
    for stream in (sample.preempting(), sample.two_tiers()):
        folder = write_run(tmp_path, stream)[0].path
        with served(folder) as server:
            page.look(width, dark=False)
            page.open(server.link)
            page.wait_for("Servers over time")
            # The heading is there before what the server sends.
            page.wait_for_element(".use title")
            titles = page.script(
                "return [...document.querySelectorAll('.use title')]"
                ".map((title) => title.textContent)"
            )
            uses = server.page.sources[0].lanes()  # type: ignore[attr-defined]
            n_bars = sum(len(lane["bars"]) for lane in uses["lanes"])
            assert len(titles) == n_bars > 0
            ends = [
                bar[6] for lane in uses["lanes"] for bar in lane["bars"]
            ]
            tiers = [
                bar[3] for lane in uses["lanes"] for bar in lane["bars"]
            ]
            preempted = [one for one in titles if "preempted" in one]
            behind = [one for one in titles if "background" in one]
            assert len(preempted) == ends.count("preempted")
            assert len(behind) == tiers.count("background")
            assert preempted or behind
            page.script(
                "document.querySelector('.use').dispatchEvent("
                "new MouseEvent('click', {bubbles: true}))"
            )
            page.wait_for("testbed explain")
            assert page.overlapping_texts() == []
            assert page.violations() == []
            assert page.errors() == []


@pytest.mark.short("400-light", "1280-dark")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_a_sweep_has_its_table(
    page: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    file = tmp_path / "watched.yaml"
    file.write_text(EXPERIMENT)
    sweep = ["sweep", str(file), "--over", "seed=1..2", "--processes", "1"]
    assert run([*sweep, "--out", str(tmp_path / "runs")]) == 0
    (folder,) = (tmp_path / "runs").glob("*-sweep")
    with served(folder) as server:
        page.look(width, dark=dark)
        page.open(server.link)
        text = page.wait_for("2 of 2 cells")
        assert "sweep, simulated" in text
        assert "wait_mean_s" in text
        assert page.script(
            "return document.documentElement.scrollWidth <= innerWidth"
        )
        assert page.violations() == []
        assert page.errors() == []


@pytest.mark.short("light")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_picture_is_saved_as_svg_png_and_csv(
    page: Browser, folder: Path, tmp_path: Path, dark: bool
) -> None:
    from selenium.webdriver.common.keys import Keys

    with served(folder) as server:
        page.look(1280, dark=dark)
        page.open(server.link)
        page.wait_for("At its end")
        page.wait_for_element(".use title")
        page.script("document.querySelector('input[type=range]').focus()")
        page.press(Keys.HOME, Keys.PAGE_UP)
        # A press before the answer to the one before counts from where the
        # page still is.
        page.wait_for("At 0.9 s")
        page.press(Keys.PAGE_UP)
        page.wait_for("2 jobs run")
        page.script(
            "document.querySelector('line.link').dispatchEvent("
            "new MouseEvent('click', {bubbles: true}))"
        )
        page.wait_for_element(".item .files")
        saved = page.save(".files button", tmp_path)
        run_header = server.page.sources[0].header()
        uses = server.page.sources[0].lanes()  # type: ignore[attr-defined]
        assert page.errors() == []
    stems = {name.rpartition(".")[0] for name in saved}
    assert len(stems) == len(saved) / 3 >= 5
    assert {
        "watched-vc-data-centre",
        "watched-vc-Used-share-of-the-data-centre",
        "watched-vc-Jobs-that-run-and-wait",
        "watched-vc-servers-over-time",
    } < stems
    for stem in stems:
        picture = ElementTree.fromstring(saved[f"{stem}.svg"])  # noqa: S314
        png = saved[f"{stem}.png"]
        assert png.startswith(b"\x89PNG\r\n")
        # A file has no style sheet, and twice the pixels.
        assert not any("class" in part.attrib for part in picture.iter())
        assert int.from_bytes(png[16:20]) == 2 * int(
            picture.attrib["width"]
        )
        words = " ".join(picture.itertext())
        assert "data-centre" in stem or "time [s]" in words
    tables = {}
    for stem in stems:
        text = saved[f"{stem}.csv"].decode()
        tables[stem] = list(csv.DictReader(text.splitlines()))
    drawn = tables["watched-vc-data-centre"]
    placed: Counter[str] = Counter()
    for row in drawn:
        placed[row["job"]] += int(row["vms"] or 0)
    assert placed["first"] == 4
    assert placed["second"] == 6
    links = [row for row in drawn if row["part"] == "link"]
    assert len(links) == 2 * len(run_header["layout"]["links"])
    assert {float(row["capacity_bps"]) for row in links} == {1e9}
    assert max(float(row["reserved_bps"]) for row in links) > 0
    times = tables["watched-vc-Jobs-that-run-and-wait"]
    assert [float(row["time_s"]) for row in times] == [
        moment["t"] for moment in run_header["curves"]
    ]
    bars = tables["watched-vc-servers-over-time"]
    assert len(bars) == sum(len(lane["bars"]) for lane in uses["lanes"])


def test_a_vm_is_chosen_by_its_square(page: Browser, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    with served(folder) as server:
        page.look(1280, dark=False)
        page.open(server.link)
        page.wait_for("At its end")
        page.script("document.querySelector('input[type=range]').focus()")
        page.press(Keys.HOME)
        page.wait_for("At 0.0 s")
        page.press(*[Keys.PAGE_UP] * 2)
        page.wait_for("2 jobs run")
        title = page.script(
            "const square = document.querySelector('.slot:not(.slot-free)');"
            "square.dispatchEvent(new MouseEvent('click', {bubbles: true}));"
            "return square.textContent;"
        )
        name = title.removeprefix("VM of ").partition(" on ")[0]
        assert f"job {name}" in page.wait_for(
            f"testbed explain {folder} {name}"
        )


def test_a_late_answer_does_not_throw_the_slider_back(
    page: Browser, folder: Path
) -> None:
    """A key press would then start from where the slider had been before."""
    with served(folder) as server:
        page.look(1280, dark=False)
        page.open(server.link)
        page.wait_for("At its end")
        page.script(
            """
            const slider = document.querySelector('input[type=range]');
            window.seenValues = new Set();
            const put = (value) => {
              slider.value = value;
              slider.dispatchEvent(new InputEvent('input', {bubbles: true}));
            };
            const look = () => {
              window.seenValues.add(Number(slider.value));
              requestAnimationFrame(look);
            };
            for (let value = 1; value <= 40; value += 1) put(value / 10);
            look();
            """
        )
        page.wait_for("At 4.0 s")
        seen = page.script("return [...window.seenValues]")
        assert seen == pytest.approx([4.0], abs=0.01)


def test_replay_and_items_by_keyboard(page: Browser, folder: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    with served(folder) as server:
        page.look(1280, dark=False)
        page.open(server.link)
        page.wait_for("At its end")
        page.script("document.querySelector('input[type=range]').focus()")
        page.press(Keys.HOME)
        page.wait_for("At 0.0 s")
        page.press(*[Keys.PAGE_UP] * 2)
        text = page.wait_for("2 jobs run")
        assert "first" in text
        page.script("document.querySelector('.node').focus()")
        page.press(Keys.ENTER)
        text = page.wait_for("In a terminal:")
        assert f"testbed plan {folder}/spec.yaml" in text
        page.press(Keys.TAB)
        assert page.script("return document.activeElement.innerText") == (
            "close"
        )
        page.press(Keys.ENTER)
        job = "button.name"
        page.script(f"document.querySelector('{job}').focus()")
        page.press(Keys.ENTER)
        text = page.wait_for("testbed explain")
        assert "asks for" in text
        assert page.violations() == []
        page.script(
            "[...document.querySelectorAll('button')]"
            ".find((button) => button.innerText === 'play').focus()"
        )
        page.press(Keys.ENTER)
        page.wait_for("pause")
        page.wait_for("of 9.0 s")
        assert page.errors() == []


def test_a_growing_run_is_followed_and_damage_is_told(
    page: Browser, folder: Path, tmp_path: Path
) -> None:
    written = (folder / EVENTS).read_bytes().splitlines(keepends=True)
    growing = tmp_path / "20261127T000000Z-grows-s1"
    growing.mkdir()
    file = growing / EVENTS
    file.write_bytes(b"".join(written[:4]))
    with served(growing) as server:
        page.look(1280, dark=False)
        page.open(server.link)
        page.wait_for("1 job runs")
        file.write_bytes(b"".join(written[:-4]))
        page.wait_for("2 jobs run")
        with file.open("ab") as opened:
            opened.write(b"{nonsense}\n")
        text = page.wait_for("Damaged or incomplete")
        assert f"events.jsonl:{len(written) - 3}: damaged" in text
        assert page.errors() == []


def test_a_wrong_token_and_a_server_that_ends_are_told(
    page: Browser, folder: Path
) -> None:
    with served(folder) as server:
        page.look(1280, dark=False)
        page.open(f"{server.link}x")
        page.wait_for("is not this server's")
        page.open(server.link)
        page.wait_for("At its end")
        assert page.errors() == []
        server.stop()
        page.wait_for("has ended or cannot be reached")
        assert "At its end" in page.text()


def test_a_foreign_host_gets_a_sentence(
    page: Browser, folder: Path
) -> None:
    with served(folder) as server:
        # A name of this machine that no link has.
        page.open(f"http://hosenet.localhost:{server.port}/#{TOKEN}")
        page.wait_for("127.0.0.1 and localhost alone")
        page.errors()


def test_a_shared_file_needs_no_server(
    page: Browser, folder: Path, tmp_path: Path
) -> None:
    from selenium.webdriver.common.keys import Keys

    file = tmp_path / "shared.html"
    file.write_text(shared_page(folder), "utf-8")
    page.look(1280, dark=False)
    page.open(file.as_uri())
    page.wait_for("At its end")
    to = tmp_path / "pictures"
    to.mkdir()
    saved = page.save("section.network .files button", to)
    assert {name.rpartition(".")[2] for name in saved} == {
        "svg",
        "png",
        "csv",
    }
    page.script("document.querySelector('input[type=range]').focus()")
    page.press(Keys.HOME)
    page.wait_for("At 0.0 s")
    page.script("document.querySelector('.node').focus()")
    page.press(Keys.ENTER)
    page.wait_for("In a terminal:")
    assert page.violations() == []
    assert page.errors() == []


@pytest.mark.long
def test_an_hours_frames_leave_the_page_as_it_is(
    page: Browser, folder: Path
) -> None:
    def push() -> None:
        (viewer,) = server.page.viewers
        run = server.page.sources[0]
        for _ in range(FRAMES_AT_ONCE):
            frame = run.frame()
            frame["at_s"] = server.moved_s = server.moved_s + 1
            frame["totals"] = {**frame["totals"], "t": server.moved_s}
            viewer.send(frame)

    with served(folder) as server:
        page.look(1280, dark=False)
        page.open(server.link)
        page.wait_for("At its end")
        sizes = []
        for end in ("76 min 40 s", "2 h 16 min"):
            for _ in range(HOUR_S // FRAMES_AT_ONCE):
                server.call(push)
            page.wait_for(f"At its end {end}")
            sizes.append(page.size())
        (first_mb, n_first), (second_mb, n_second) = sizes
        assert max(first_mb, second_mb) < MOST_MB
        assert n_second <= 1.05 * n_first
        assert page.errors() == []


def test_the_page_keeps_no_frame_that_it_has_drawn(
    page: Browser, folder: Path
) -> None:
    """Each frame changes another server, whose squares then stay as they are."""

    def push() -> None:
        (viewer,) = server.page.viewers
        frame = server.page.sources[0].frame()
        number = len(placed)
        placed[number] = [[f"job-{number}", 1]]
        frame["placed"] = dict(placed)
        frame["at_s"] = server.moved_s = server.moved_s + 1
        viewer.send(frame)

    placed: dict[int, list[list[object]]] = {}
    with served(folder) as server:
        page.look(1280, dark=False)
        page.open(server.link)
        page.wait_for("At its end")
        for number in range(1, 17):
            server.call(push)
            # Drawn, and not passed over for the next.
            page.wait_for(f"At its end 16 min {40 + number} s")
        assert page.n_objects("(one) => one.kind === 'frame'") <= 4
        assert page.errors() == []
