"""Stands for nvidia-cuda-mps-control: a daemon, its server and the control program in one file.

FAKE_MPS holds words that change it: `refuse` (the daemon does not start), `silent` (nor answers),
`faulty` (the server gives up), `stubborn` (`quit` has no effect), `secretive` (environments and pid
file tell nothing apart: the mark is gone from the environment).
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

MOOD = os.environ.get("FAKE_MPS", "")
PIPE = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
PID_FILE = PIPE / "nvidia-cuda-mps-control.pid"


def log(text):
    with (Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]) / "control.log").open("a") as file:
        file.write(f"[time Control {os.getpid()}] {text}\n")


def start():
    log("Starting control daemon")
    if "refuse" in MOOD:
        log("no device is willing")
        sys.exit(1)
    if "secretive" in MOOD and "JOYRL_MPS" in os.environ:
        os.environ.pop("JOYRL_MPS")
        os.execve(sys.argv[0], sys.argv, os.environ)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(PIPE / "control"))
    listener.listen()
    if os.fork():
        return
    os.setsid()
    PID_FILE.write_text(f"{os.getpid()}\n")
    (PIPE / "devices").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    serve(listener)


def serve(listener):
    server = None
    while True:
        peer, _ = listener.accept()
        command = peer.recv(1000).decode().split()
        log(f"command {command}")
        answer = ""
        if "silent" in MOOD:
            time.sleep(3600)
        elif command[0] == "start_server":
            assert command[1:] == ["-uid", str(os.getuid())]
            if "faulty" in MOOD:
                log("Server 95 exited with status 1")
            elif server is None and not (server := os.fork()):
                listener.close()
                peer.close()
                time.sleep(3600)
        elif command[0] == "get_server_list":
            answer = f"{server}\n" if server else ""
        elif command[0] == "get_server_status":
            answer = "ACTIVE\n"
        elif command[0] == "quit" and "stubborn" not in MOOD:
            if server:
                os.kill(server, signal.SIGKILL)
            PID_FILE.unlink()
            log("bye")
            (PIPE / "has_quit").touch()
            peer.close()
            sys.exit(0)
        peer.sendall(answer.encode())
        peer.close()


def say():
    for line in sys.stdin:
        with socket.socket(socket.AF_UNIX) as peer:
            try:
                peer.connect(str(PIPE / "control"))
            except OSError:
                print("Cannot find MPS control daemon process")
                sys.exit(1)
            peer.sendall(line.encode())
            while part := peer.recv(1000):
                sys.stdout.write(part.decode())


if sys.argv[1:] == ["-d"]:
    start()
else:
    say()
