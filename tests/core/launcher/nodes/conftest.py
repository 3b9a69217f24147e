"""Launchers of several nodes as threads of one process, on its loopback interface."""

import socket
import threading

import pytest

from joyrlinf_core.launcher.nodes.meeting import met
from joyrlinf_core.launcher.nodes.settings import NodeSettings


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Node(threading.Thread):
    """One launcher: meets the others, then does what it is told.

    After `join`, `result` is what that returned, `error` what it raised, `said` what it told.
    """

    def __init__(self, settings, action):
        super().__init__(daemon=True)
        self.settings = settings
        self.action = action
        self.result = self.error = None
        self.said = []
        self.start()

    def run(self):
        try:
            with met(self.settings, self.said.append) as team:
                self.result = self.action(team)
        except BaseException as error:
            self.error = error


@pytest.fixture
def run_nodes():
    """Returns a function that runs an action on nodes, and returns them once all have ended."""

    def run(action, *, nodes=2, ranks=None, timeout=20.0, counts=None):
        port = free_port()
        ranks = range(nodes) if ranks is None else ranks
        counts = counts or [nodes] * len(ranks)
        started = [
            Node(NodeSettings(count, rank, "127.0.0.1", port, timeout), action)
            for count, rank in zip(counts, ranks, strict=True)
        ]
        for node in started:
            node.join(60)
            assert not node.is_alive(), f"node {node.settings.node_rank} hangs"
        return started

    return run
