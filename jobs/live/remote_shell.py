"""The remote shell of a job's VMs: a script of the standard library alone.

``remote-shell VM WORD…`` has the agent of another VM of the job run a shell
command, as ``ssh`` would: the words with blanks between them. It ends with the
command's exit code; if it is ended before, the command is.
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
    while words and words[0].startswith("-"):
        words = words[1:]
    if len(words) < 2:
        print(
            "usage: remote-shell VM WORD...",
            file=sys.stderr,
        )
        return UNREACHABLE
    try:
        agent = _connected(words[0], int(os.environ[PORT]))
    except OSError as error:
        print(
            f"remote-shell: {words[0]}: {error}",
            file=sys.stderr,
        )
        return UNREACHABLE
    with agent:
        request = json.dumps({"command": " ".join(words[1:])})
        agent.sendall(request.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            data = agent.recv(4096)
            if not data:
                print(
                    f"remote-shell: {words[0]} hung up",
                    file=sys.stderr,
                )
                return UNREACHABLE
            answer += data
    return int(answer)


def _connected(host: str, port: int) -> socket.socket:
    """A connection; the other VM's agent may be a moment later."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            own = (os.environ[ADDRESS], 0)
            agent = socket.create_connection((host, port), PATIENCE_S, own)
        except ConnectionRefusedError:
            if time.monotonic() > end_s:
                raise
            time.sleep(RETRY_S)
        else:
            agent.settimeout(None)
            return agent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
