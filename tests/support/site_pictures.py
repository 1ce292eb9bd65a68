"""Pictures of the site's first page, made by the commands that it names.

    python -m tests.support.site_pictures RUN AT_S

``docs/figures/bandwidth-scaling.png`` is one of ``testbed report --pictures``;
``live-page.png`` is a photograph of the page of ``testbed share``, which is the one of
``testbed watch``, at a time of the run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from testbed.cli.main import run
from tests.support.browser import browser

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
WIDTH = 1280
HEIGHT = 900


def make(folder: str, at_s: float) -> None:
    """Raises RuntimeError where a command fails."""
    with tempfile.TemporaryDirectory() as scratch:
        pictures = Path(scratch)
        shared = pictures / "page.html"
        commands = (
            ["report", folder, "--pictures", str(pictures)],
            ["share", folder, "--out", str(shared)],
        )
        for command in commands:
            if run(command) != 0:
                raise RuntimeError(f"testbed {' '.join(command)} failed")
        shutil.copy(
            pictures / "scaling.png", FIGURES / "bandwidth-scaling.png"
        )
        with browser(pictures / "profile") as page:
            page.look(WIDTH, dark=False)
            page.open(f"file://{shared}")
            page.wait_for("Data centre")
            page.script(
                "const time = document.querySelector('input[type=range]');"
                "time.value = arguments[0];"
                "time.dispatchEvent(new Event('input', {bubbles: true}));",
                at_s,
            )
            page.wait_for("Jobs now")
            page.driver.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride",
                {
                    "width": WIDTH,
                    "height": HEIGHT,
                    "deviceScaleFactor": 1,
                    "mobile": False,
                },
            )
            page.driver.save_screenshot(str(FIGURES / "live-page.png"))


if __name__ == "__main__":
    make(sys.argv[1], float(sys.argv[2]))
