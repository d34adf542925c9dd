"""A Python that has loaded hybridlat: the commands of a page are processes that are forked from it.

``python fork.py serve SOCKET`` answers ``python fork.py ask SOCKET hybridlat predict …`` until its
standard input ends. What a command measures is measured once, for a short time.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys

# Nothing that starts threads, as ONNX Runtime and pandas do: they would be lost in the fork.
LOADED = ("hybridlat.cli.predict", "hybridlat.api.predictor", "hybridlat.api.parallel", "optuna")


def serve(path: str) -> int:
    """Fork a process for each command."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            peer, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(peer)
                return 0
            peer.close()
    return 0


def _load() -> None:
    import importlib

    from tests.fakes.short import shorten

    shorten()
    for name in LOADED:
        with contextlib.suppress(ImportError):  # Optuna is for one page
            importlib.import_module(name)


def _answer(peer: socket.socket) -> None:
    """Run one command in a process of its own; what it ends with is the answer."""
    request, streams, *_ = socket.recv_fds(peer, 1 << 20, 3)
    while more := peer.recv(1 << 20):
        request += more
    if command := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        peer.sendall(bytes([code % 256]))
        os._exit(0)
    peer.close()
    for own, given in enumerate(streams):
        os.dup2(given, own)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    words, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    if words[0] == "hybridlat":
        from hybridlat.cli.main import main

        main()
    import runpy

    sys.argv = words[1:]
    sys.path[0] = folder
    runpy.run_path(words[1], run_name="__main__")


def ask(path: str, *words: str) -> int:
    """Have a command run; what it ends with."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        request = json.dumps([words, os.getcwd(), dict(os.environ)])  # noqa: PTH109  quick
        socket.send_fds(peer, [request.encode()], [0, 1, 2])
        peer.shutdown(socket.SHUT_WR)
        return peer.recv(1)[0]


if __name__ == "__main__":
    sys.exit(serve(sys.argv[2]) if sys.argv[1] == "serve" else ask(*sys.argv[2:]))
