"""Debian's Chromium without a window, driven by Selenium, for the tests of pages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

CHROMIUM = "chromium"
DRIVER = "chromedriver"
WAIT_S = 120
SEVERE = "SEVERE"


def lacks_browser() -> str | None:
    """Why no page can be opened here; None where one can."""
    for program in (CHROMIUM, DRIVER):
        if shutil.which(program) is None:
            return f"no {program} (Debian: chromium chromium-driver)"
    try:
        import axe_core_python  # noqa: F401
        import selenium  # noqa: F401
    except ImportError as error:
        return f"Python has no {error.name}"
    shown = subprocess.run(
        [CHROMIUM, "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if shown.returncode != 0:
        return f"chromium does not start: {shown.stderr.strip()[:200]}"
    return None


class Browser:
    """A browser's page; ``driver``: Selenium's."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def look(self, width: int, *, dark: bool) -> None:
        """The window's width in pixels, and the colours that its user likes."""
        command = self.driver.execute_cdp_cmd
        size = {"width": width, "height": 1_500}
        command(
            "Emulation.setDeviceMetricsOverride",
            {**size, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {
            "name": "prefers-color-scheme",
            "value": "dark" if dark else "light",
        }
        command("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, address: str) -> None:
        # Another link of the same page would only change what is behind #.
        self.driver.get("about:blank")
        # The page before continues to ask for its server, which has ended.
        self.errors()
        self.driver.get(address)

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def text(self) -> str:
        shown: str = self.script("return document.body.innerText")
        return shown

    def wait_for(self, text: str) -> str:
        """Waits until the page says this; the whole of its text."""
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        waiting = WebDriverWait(self.driver, WAIT_S)
        try:
            waiting.until(lambda _: text in self.text())
        except TimeoutException:
            said = f"{self.text()}\n{self.errors()}"
            raise AssertionError(f"{text!r} is not in {said}") from None
        return self.text()

    def wait_for_element(self, selector: str) -> None:
        """Waits until the page has one that this CSS selector means."""
        from selenium.webdriver.support.ui import WebDriverWait

        question = f"return document.querySelector({selector!r}) !== null"
        waiting = WebDriverWait(self.driver, WAIT_S)
        waiting.until(lambda _: self.script(question), selector)

    def press(self, *keys: str) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def save(self, selector: str, folder: Path) -> dict[str, bytes]:
        """Presses all buttons that a selector means; the files that they save,
        by name, each button one.
        """
        from selenium.webdriver.support.ui import WebDriverWait

        settings = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", settings)
        n_before = len(list(folder.iterdir()))
        count = "return document.querySelectorAll(arguments[0]).length"
        press = (
            "document.querySelectorAll(arguments[0])[arguments[1]].click()"
        )
        waiting = WebDriverWait(self.driver, WAIT_S)
        for number in range(self.script(count, selector)):
            # One at a time: browsers ask before they save several at once.
            self.script(press, selector, number)
            n_files = n_before + number + 1
            waiting.until(lambda _, n=n_files: len(_whole(folder)) == n)
        return {path.name: path.read_bytes() for path in _whole(folder)}

    def size(self) -> tuple[float, int]:
        """Memory of the page's script in MB, and its elements, without what is
        no longer used.
        """
        command = self.driver.execute_cdp_cmd
        command("HeapProfiler.collectGarbage", {})
        command("Performance.enable", {})
        values = {}
        for metric in command("Performance.getMetrics", {})["metrics"]:
            values[metric["name"]] = metric["value"]
        return values["JSHeapUsedSize"] / 1e6, int(values["Nodes"])

    def n_objects(self, holds: str) -> int:
        """Objects that the page's script holds, of which a function in
        JavaScript is true.
        """
        command = self.driver.execute_cdp_cmd
        command("HeapProfiler.collectGarbage", {})
        group = {"objectGroup": "counted"}
        prototype = command(
            "Runtime.evaluate", {"expression": "Object.prototype", **group}
        )["result"]["objectId"]
        all_objects = command(
            "Runtime.queryObjects",
            {"prototypeObjectId": prototype, **group},
        )["objects"]["objectId"]
        counting = f"function () {{ return this.filter({holds}).length; }}"
        counted = command(
            "Runtime.callFunctionOn",
            {
                "objectId": all_objects,
                "functionDeclaration": counting,
                "returnByValue": True,
            },
        )
        command("Runtime.releaseObjectGroup", group)
        return int(counted["result"]["value"])

    def errors(self) -> list[str]:
        """Errors in the console since the last call."""
        said = []
        for entry in self.driver.get_log("browser"):
            if entry["level"] == SEVERE:
                said.append(entry["message"])
        return said

    def violations(self) -> list[str]:
        """Rules of accessibility that the page breaks, by axe-core."""
        axe = files("axe_core_python") / "axe.min.js"
        self.script(axe.read_text("utf-8"))
        broken = self.driver.execute_async_script(
            "const done = arguments[0];"
            "axe.run(document).then((result) => done(result.violations));"
        )
        violations = []
        for rule in broken:
            where = [node["target"] for node in rule["nodes"][:3]]
            violations.append(f"{rule['id']}: {where}")
        return violations

    def overlapping_texts(self) -> list[str]:
        """Pairs of labels in the drawing that lie on each other."""
        pairs: list[str] = self.script(_OVERLAPS)
        return pairs


_OVERLAPS = """
const texts = [...document.querySelectorAll('.drawing text')];
const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
const found = [];
for (let i = 0; i < boxes.length; i += 1)
  for (let j = i + 1; j < boxes.length; j += 1) {
    const [a, b] = [boxes[i][1], boxes[j][1]];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 2) found.push(`${boxes[i][0]} on ${boxes[j][0]}`);
  }
return found;
"""


def _whole(folder: Path) -> list[Path]:
    """Files of a folder that are no longer being written."""
    ends = (".crdownload", ".tmp")
    return [path for path in folder.iterdir() if path.suffix not in ends]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with its own, empty profile in ``folder``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which(CHROMIUM) or CHROMIUM
    arguments = [
        "--headless=new",
        "--disable-gpu",
        # Containers have little of /dev/shm, in which Chromium shares
        # memory between its processes.
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--user-data-dir={folder}",
    ]
    if os.geteuid() == 0:
        # Chromium refuses to be root's with its sandbox.
        arguments.append("--no-sandbox")
    for argument in arguments:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(shutil.which(DRIVER) or DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_script_timeout(WAIT_S)
        yield Browser(driver)
    finally:
        driver.quit()
