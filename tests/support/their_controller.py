"""A controller of somebody else's: os-ken with its own server, as its users start it.

python -m tests.support.their_controller PORT APPLICATION
"""

from __future__ import annotations

import sys
from typing import Any, cast

# The example takes Ryu where it is there.
sys.modules["ryu"] = cast(Any, None)


def main(port: str, application: str) -> None:
    from os_ken.base.app_manager import AppManager

    from os_ken import cfg  # isort: skip - the manager has to come first
    from os_ken.controller import controller

    assert controller.CONF is cfg.CONF
    arguments = ["--ofp-listen-host", "127.0.0.1"]
    arguments += ["--ofp-tcp-listen-port", port]
    cfg.CONF(
        arguments,
        project="theirs",
        default_config_files=[],
        default_config_dirs=[],
    )
    AppManager.run_apps([application])


if __name__ == "__main__":
    main(*sys.argv[1:3])
