"""Two network namespaces of this machine, joined by a veth pair, and launchers in them."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from joyrlinf_core.observability.liveness import ProcessId

ADDRESSES = ("10.231.77.1", "10.231.77.2")
HERE = Path(__file__).parent


def ip(*words):
    command = ["ip", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


class Namespaces:
    """Two machines, as far as the network can tell.

    Attributes:
        names: Of the namespaces.
        links: Interface in each.
    """

    def __init__(self):
        self.names = [f"joyrl{os.getpid()}n{node}" for node in range(2)]
        self.links = [f"jv{os.getpid()}n{node}" for node in range(2)]

    def open(self):
        self.remove_stale()
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", self.links[0], "type", "veth", "peer", "name", self.links[1])
        for name, link, address in zip(self.names, self.links, ADDRESSES, strict=True):
            ip("link", "set", link, "netns", name)
            ip("-n", name, "address", "add", f"{address}/24", "dev", link)
            self.set(name, "lo", "up")
            self.set(name, link, "up")

    def set(self, name, link, state):
        ip("-n", name, "link", "set", link, state)

    @staticmethod
    def remove_stale():
        """Remove what test runs left behind that were killed."""
        listed = subprocess.run(
            ["ip", "netns", "list"], capture_output=True, text=True, check=False
        )
        for name in re.findall(r"(?m)^joyrl\d+n[01]\b", listed.stdout):
            if not ProcessId.of(int(re.search(r"\d+", name).group())).alive:
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.fixture(scope="module")
def namespaces():
    if shutil.which("ip") is None:
        pytest.skip("no `ip` command here")
    found = Namespaces()
    try:
        found.open()
    except OSError as error:
        found.close()
        pytest.skip(f"no network namespaces here: {error}")
    yield found
    found.close()


class Launcher:
    """One launcher as a process in a namespace."""

    def __init__(self, namespaces, node, directory, spec, environ):
        self.node = node
        self.output = directory / f"output{node}"
        file = directory / f"spec{node}.json"
        file.write_text(json.dumps(spec))
        script = [sys.executable, str(HERE / "node_launcher.py"), str(file)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", namespaces.names[node], *script],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environ},
            )

    @property
    def told(self):
        """What the launcher told, as pairs of kind and text; other lines have the kind `?`."""
        lines = self.output.read_text().splitlines()
        return [json.loads(line) if line.startswith("[") else ["?", line] for line in lines]

    def of(self, kind):
        return [text for one, text in self.told if one == kind]


class Pair:
    """A run on two nodes of one rank each."""

    def __init__(self, namespaces, directory, *, behave, disks=2, **more):
        self.namespaces = namespaces
        self.directory = directory
        spec = {"speaker_is_last": more.pop("speaker_is_last", False), "args": {"behave": behave}}
        options = {"master_addr": ADDRESSES[0], "master_port": 29411, "timeout": 60.0}
        own = more.pop("own", [{}, {}])
        self.launchers = []
        for node in range(2):
            config = {
                "cluster": {"num_nodes": 2, "gpus_per_node": 1, "device": "cpu"},
                "env": {"train": {"type": "fake_parts:FakeEnv"}},
                "actor": {"model": {"model_type": "fake_parts:FakeModel"}},
                "runner": {
                    "seed": own[node].get("seed", 0),
                    "stuck_after_seconds": more.get("stuck_after", 600.0),
                    "logger": {"log_path": "results", "logger_backends": []},
                },
            }
            place = directory / f"disk{node if disks == 2 else 0}"
            place.mkdir(exist_ok=True)
            node_options = {**options, "node_rank": node, **own[node].get("options", {})}
            full = {**spec, "config": config, "options": node_options, "cwd": str(place)}
            environ = own[node].get("environ", {})
            self.launchers.append(Launcher(namespaces, node, directory, full, environ))

    def wait(self, seconds=120):
        """Return the exit codes."""
        return [launcher.process.wait(timeout=seconds) for launcher in self.launchers]

    def until(self, condition, seconds=120):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain\n{self.outputs()}"
            time.sleep(0.05)

    def until_ready(self):
        """Wait until the workers of both nodes run."""
        self.until(lambda: len(list(self.directory.rglob("ready_rank*"))) == 2)

    def outputs(self):
        return "\n".join(f"--- node {one.node}\n{one.output.read_text()}" for one in self.launchers)

    def processes(self):
        """Return the ids of the fake simulators; one for each worker that came that far."""
        return [int(path.read_text()) for path in self.directory.rglob("simulator_rank*")]

    def kill(self):
        for launcher in self.launchers:
            if launcher.process.poll() is None:
                launcher.process.kill()
                launcher.process.wait()
