"""OpenFlow names from Ryu or os-ken. Nothing else in the project imports either.

`library.choose_library` decides which. The library is imported when this module is; whoever runs
Ryu for good calls `library.prepare` before that.
"""

from __future__ import annotations

import importlib
from typing import Any

from controller.library import PACKAGES, choose_library

LIBRARY = choose_library()
_PACKAGE = PACKAGES[LIBRARY]


def _module(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{name}")


if LIBRARY == "ryu":
    # Ryu's application manager imports its own web server, which asks eventlet for a name that
    # eventlet gave up in 0.30.3. The server is never started.
    _wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(_wsgi, "ALREADY_HANDLED"):
        _wsgi.ALREADY_HANDLED = object()

# os-ken: the application manager has to come first, or its modules import each other in a circle.
app_manager = _module("base.app_manager")
configuration = _module("cfg").CONF
controller = _module("controller.controller")
handler = _module("controller.handler")
hub = _module("lib.hub")
ofp_event = _module("controller.ofp_event")
ofp_handler = _module("controller.ofp_handler")
ofproto = _module("ofproto.ofproto_v1_3")

Application: Any = app_manager.RyuApp if LIBRARY == "ryu" else app_manager.OSKenApp
"""What an OpenFlow application derives from."""
