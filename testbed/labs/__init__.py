"""Labs of a course on SDN reservation: starting points, checks and marks.

From Python: ``labs.start(3)``, ``labs.check(3)``, ``labs.hint(3)``, after
``from testbed import labs``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.labs.checked_folder import check as check
    from testbed.labs.checked_folder import hint as hint
    from testbed.labs.checked_folder import start as start
else:

    def __getattr__(name):
        """The Python interface's functions, imported when first asked for."""
        if name in ("check", "hint", "start"):
            from testbed.labs import checked_folder

            return getattr(checked_folder, name)
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}"
        )
