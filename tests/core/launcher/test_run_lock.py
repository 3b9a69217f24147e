import multiprocessing
import os
import socket

import pytest

from joyrlinf_core.errors import UsageError
from joyrlinf_core.launcher import run_lock
from joyrlinf_core.observability.run_dir import RunDir


def _hold(run_dir, held, release):
    with run_lock.held(run_dir):
        held.set()
        release.wait(60)


def test_second_launcher_is_told_who_holds_the_run(tmp_path):
    context = multiprocessing.get_context("fork")
    held, release = context.Event(), context.Event()
    run_dir = RunDir(tmp_path)
    holder = context.Process(target=_hold, args=(run_dir, held, release))
    holder.start()
    assert held.wait(60)
    with pytest.raises(UsageError) as caught, run_lock.held(run_dir):
        pass
    assert f"process {holder.pid} on {socket.gethostname()}" in caught.value.message
    holder.kill()
    holder.join()
    with run_lock.held(run_dir):  # the lock went with the process
        assert run_dir.lock.read_text().startswith(f"{os.getpid()} on ")
