"""The remote shell of a job's VMs: a script of the standard library alone.

``remote-shell VM WORD…`` has the agent of another VM of the job run a shell
command, as ``ssh`` would: the words with blanks between them. Its exit code is
the command's; if it is ended before the command, the command is ended too.
"""

import json
import os
import socket
import sys
import time

PORT = "HOSENET_SHELL_PORT"
ADDRESS = "HOSENET_IP"
UNREACHABLE = 255
"""The exit code where there is no connection, as ssh's."""
PATIENCE_S = 30.0
RETRY_S = 0.05


def main(words: list[str]) -> int:
    """Runs ``words[1:]`` in the VM ``words[0]``; options are passed over."""
    # Those that launchers give to ssh: -x, -q and their like.
    while words and words[0].startswith("-"):
        words = words[1:]
    if len(words) < 2:
        return _failed("usage: remote-shell VM WORD...")
    vm = words[0]
    request = json.dumps({"command": " ".join(words[1:])})
    try:
        with _connected(vm, int(os.environ[PORT])) as agent:
            agent.sendall(request.encode() + b"\n")
            answer = agent.makefile("rb").readline()
    except OSError as error:
        return _failed(f"remote-shell: {vm}: {error}")
    if not answer.endswith(b"\n"):
        return _failed(f"remote-shell: {vm} hung up")
    return int(answer)


def _failed(sentence: str) -> int:
    """Prints a sentence; returns the exit code for it."""
    print(sentence, file=sys.stderr)
    return UNREACHABLE


def _connected(
    vm: str,
    port: int,
) -> socket.socket:
    """A connection to the VM's agent, which may start a moment later."""
    # From this VM's address, by which the agent tells the job's VMs from
    # all others.
    source = (os.environ[ADDRESS], 0)
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            agent = socket.create_connection(
                (vm, port), timeout=PATIENCE_S, source_address=source
            )
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(RETRY_S)
        else:
            # A command may be silent for hours.
            agent.settimeout(None)
            return agent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
