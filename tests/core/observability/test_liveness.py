import os
import subprocess
import sys
from pathlib import Path

from joyrlinf_core.observability.liveness import PF_EXITING, ProcessId


def test_a_process_is_alive_until_it_ends_even_as_a_zombie():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessId.parse(str(ProcessId.of(process.pid)))
    assert identity.alive
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive
    process.wait()
    assert not identity.alive


def test_a_recycled_pid_is_another_process():
    own = ProcessId.of(os.getpid())
    assert own.alive
    assert not ProcessId(own.pid, "1").alive


def test_a_process_that_is_ending_counts_as_gone(monkeypatch):
    own = ProcessId.of(os.getpid())
    before, _, after = Path("/proc/self/stat").read_text().rpartition(")")
    values = after.split()
    values[6] = str(int(values[6]) | PF_EXITING)
    text = f"{before}) {' '.join(values)}"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    assert not own.alive
