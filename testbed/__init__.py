"""Hosenet: data-centre schedulers that reserve bandwidth, on a real network.

The Python interface, described in ``docs/python.md``: ``load`` an experiment,
``open_run`` a run's folder, ``compare`` two runs, ``sweep`` over values, bring
``up`` a network. What is listed in ``__all__`` keeps its form within a major
version. Importing this package loads nothing else.
"""

from typing import TYPE_CHECKING

__all__ = [
    "BadInput",
    "Comparison",
    "DoesNotFit",
    "Experiment",
    "MachineCannot",
    "Run",
    "RunFailed",
    "SpecErrors",
    "Sweep",
    "TestbedError",
    "__version__",
    "compare",
    "load",
    "open_run",
    "sweep",
    "up",
]

if TYPE_CHECKING:
    from testbed.errors import BadInput as BadInput
    from testbed.errors import DoesNotFit as DoesNotFit
    from testbed.errors import MachineCannot as MachineCannot
    from testbed.errors import RunFailed as RunFailed
    from testbed.errors import TestbedError as TestbedError
    from testbed.interface.compared_runs import Comparison as Comparison
    from testbed.interface.compared_runs import compare as compare
    from testbed.interface.finished_run import Run as Run
    from testbed.interface.finished_run import open_run as open_run
    from testbed.interface.loaded_experiment import Experiment as Experiment
    from testbed.interface.loaded_experiment import load as load
    from testbed.spec.document import SpecErrors as SpecErrors
    from testbed.standing.standing_network import up as up
    from testbed.sweeps.python_sweep import sweep as sweep
    from testbed.sweeps.sweep_folder import Sweep as Sweep

    __version__: str
else:
    _MODULES = {
        "BadInput": "errors",
        "Comparison": "interface.compared_runs",
        "DoesNotFit": "errors",
        "Experiment": "interface.loaded_experiment",
        "MachineCannot": "errors",
        "Run": "interface.finished_run",
        "RunFailed": "errors",
        "SpecErrors": "spec.document",
        "Sweep": "sweeps.sweep_folder",
        "TestbedError": "errors",
        "compare": "interface.compared_runs",
        "load": "interface.loaded_experiment",
        "open_run": "interface.finished_run",
        "sweep": "sweeps.python_sweep",
        "up": "standing.standing_network",
    }

    def __getattr__(name):
        """The public names, imported when they are first asked for."""
        if name == "__version__":
            from testbed.version import installed_version

            return installed_version()
        if name not in _MODULES:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}"
            )
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__():
        return __all__
