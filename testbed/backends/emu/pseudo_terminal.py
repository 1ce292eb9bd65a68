"""A pseudo-terminal between a caller's terminal and a program in a VM.

A program that has its caller's terminal can type into it (TIOCSTI), and what it
types runs as the caller once the program has ended. A program in a VM gets
files and pipes as they are; in place of a terminal it gets one of its own, and
this process passes keys and output on.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import termios
import tty
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from testbed.backends.emu.interrupts import (
    handle_signals,
    restore_handlers,
)

INPUT = 0
OUTPUT = 1
ERROR = 2
PASSED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
CHUNK_BYTES = 65_536
OUTPUT_FLAGS = 1
"""Place in a terminal's attributes."""


@dataclass(frozen=True)
class ProgramStreams:
    """Standard streams of a program, as ``Popen`` takes them.

    None: this process's own. ``terminal``: the program's controlling terminal.
    """

    stdin: int | None
    stdout: int | None
    stderr: int | None
    terminal: int | None = None


Start = Callable[[ProgramStreams], subprocess.Popen[bytes]]


def run_apart(start: Start) -> int:
    """Runs a program with this process's streams, but never its terminal.

    ``start`` starts it in a session of its own. Returns the exit code, negative
    for a signal, as ``Popen`` has it. Signals that would end this process are
    sent to the program.
    """
    _open_standard_streams()
    with ExitStack() as stack:
        relay = TerminalRelay(stack)
        signals = stack.enter_context(SignalRelay())
        child = start(relay.streams)
        stack.callback(end_program, child)
        signals.send_to(child)
        relay.follow(child)
        return child.wait()


def _open_standard_streams() -> None:
    """Opens closed standard streams on /dev/null.

    Otherwise the pseudo-terminal would get a stream's number.
    """
    for descriptor in (INPUT, OUTPUT, ERROR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class TerminalRelay:
    """Streams of one program, relayed where this process's are a terminal.

    Keys are read only if output goes to the terminal, too: in ``exec … | less``
    they are for less, and the program's input is empty. It is also empty for a
    program in the background.
    """

    def __init__(self, stack: ExitStack) -> None:
        screens = [fd for fd in (OUTPUT, ERROR) if os.isatty(fd)]
        self._typed = False
        self._master = -1
        self._keys = b""
        if not screens:
            self.streams = ProgramStreams(_no_terminal(), None, None)
            return
        self._screen = screens[0]
        self._typed = self._screen == OUTPUT and _in_foreground()
        self._master, self._slave = os.openpty()
        stack.callback(os.close, self._master)
        # Kept open here: once nobody has the slave open, reads of the master
        # fail, but a program may close its terminal and open it again.
        stack.callback(os.close, self._slave)
        os.set_blocking(self._master, False)
        self._set_up(stack)
        self.streams = ProgramStreams(
            self._slave if self._typed else _no_terminal(),
            self._slave if OUTPUT in screens else None,
            self._slave if ERROR in screens else None,
            self._slave,
        )

    def _set_up(self, stack: ExitStack) -> None:
        """Gives the program's terminal the attributes and size of this process's.

        Where keys are read, this process's terminal becomes raw: the program's
        interprets them.
        """
        if self._typed:
            usual = termios.tcgetattr(INPUT)
            termios.tcsetattr(self._slave, termios.TCSANOW, usual)
            stack.callback(_give_back, usual)
            tty.setraw(INPUT, termios.TCSADRAIN)
        else:
            # The terminal that shows the output converts line ends already.
            attributes = termios.tcgetattr(self._slave)
            attributes[OUTPUT_FLAGS] &= ~termios.OPOST
            termios.tcsetattr(self._slave, termios.TCSANOW, attributes)
        self._resize(signal.SIGWINCH, None)
        previous = signal.signal(signal.SIGWINCH, self._resize)
        stack.callback(signal.signal, signal.SIGWINCH, previous)

    def _resize(self, _number: int, _frame: FrameType | None) -> None:
        with suppress(termios.error):
            size = termios.tcgetwinsize(self._screen)
            termios.tcsetwinsize(self._slave, size)

    def follow(self, child: subprocess.Popen[bytes]) -> None:
        """Passes keys and output on until the program has ended."""
        if self._master < 0:
            child.wait()
            return
        ended = os.pidfd_open(child.pid)
        try:
            while self._pass_on(ended):
                pass
        except OSError:
            # The screen is gone.
            _send(child, signal.SIGHUP)
        finally:
            os.close(ended)

    def _pass_on(self, ended: int) -> bool:
        """Waits for something to pass on; False once the program has ended.

        Raises OSError where the screen or the keys are gone.
        """
        reading = [ended, self._master]
        writing = []
        if self._keys:
            writing.append(self._master)
        elif self._typed:
            reading.append(INPUT)
        ready, accepting, _ = select.select(reading, writing, [])
        if accepting:
            with suppress(BlockingIOError):
                n_taken = os.write(self._master, self._keys)
                self._keys = self._keys[n_taken:]
        if INPUT in ready:
            self._keys = os.read(INPUT, CHUNK_BYTES)
            # A raw terminal has no end of input: empty means hung up.
            if not self._keys:
                raise OSError(errno.EIO, "the terminal has hung up")
        self._show()
        return ended not in ready

    def _show(self) -> None:
        """Shows all output that is there."""
        with suppress(BlockingIOError):
            while text := os.read(self._master, CHUNK_BYTES):
                while text:
                    text = text[os.write(self._screen, text) :]


def _give_back(usual: list[Any]) -> None:
    """Gives the input its usual attributes, unless its terminal is gone."""
    with suppress(termios.error):
        termios.tcsetattr(INPUT, termios.TCSADRAIN, usual)


def _no_terminal() -> int | None:
    """The empty input in place of a terminal, this process's otherwise."""
    return subprocess.DEVNULL if os.isatty(INPUT) else None


def _in_foreground() -> bool:
    """True where the input is a terminal whose keys are this process's."""
    if not os.isatty(INPUT):
        return False
    try:
        return os.tcgetpgrp(INPUT) == os.getpgrp()
    except OSError:
        # The terminal is not this session's, whose job control is all that
        # could put this process into the background.
        return True


class SignalRelay:
    """For a block, sends signals that would end this process to a program."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._held: list[int] = []
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = handle_signals(PASSED_ON, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        restore_handlers(self._previous)

    def send_to(self, child: subprocess.Popen[bytes]) -> None:
        """Sends signals to ``child`` from now on, and those held so far now."""
        self._child = child
        for number in self._held:
            _send(child, number)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._child is None:
            self._held.append(number)
        else:
            _send(self._child, number)


def end_program(child: subprocess.Popen[bytes]) -> None:
    """Kills a program that still runs, with its whole process group."""
    if child.poll() is None:
        _send(child, signal.SIGKILL)
        child.wait()


def _send(child: subprocess.Popen[bytes], number: int) -> None:
    # It leads a session of its own, so its number is its group's as well.
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
