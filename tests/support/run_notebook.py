"""Runs a notebook in a folder and prints it with its outputs, as JSON.

    python -m tests.support.run_notebook NOTEBOOK FOLDER

The kernel is this interpreter, on the loopback device. In a process of its own: the libraries of
kernels leave sockets to the garbage collector.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient


class Here(AsyncKernelManager):
    """A manager of kernels that are this interpreter; none needs to be registered."""

    @property
    def kernel_spec(self) -> KernelSpec:
        argv = [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ]
        return KernelSpec(
            argv=argv, display_name="this interpreter", language="python"
        )


def main(notebook: str, folder: str) -> None:
    cells = nbformat.read(Path(notebook), as_version=4)
    nbformat.validate(cells)
    resources = {"metadata": {"path": folder}}
    NotebookClient(
        cells, km=Here(ip="127.0.0.1"), timeout=240, resources=resources
    ).execute()
    sys.stdout.write(nbformat.writes(cells))


if __name__ == "__main__":
    main(*sys.argv[1:])
