import subprocess
import sys
from pathlib import Path

from joyrlinf_core.launcher.command import torchrun_command, worker_environment


def test_one_node_meets_through_a_file(make_plan):
    command = torchrun_command(make_plan(ranks=4), Path("/run"), rendezvous=Path("/meet"))
    text = " ".join(command)
    assert command[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert "--nnodes 1 --nproc-per-node 4" in text
    assert "--rdzv-conf store_type=file --rdzv-endpoint /meet" in text
    assert text.endswith("-m joyrlinf_core.worker /run")


def test_several_nodes_meet_at_the_master(make_plan):
    command = torchrun_command(
        make_plan(ranks=8, nodes=2), Path("/run"), node_rank=1, master=("10.0.0.1", 29400)
    )
    text = " ".join(command)
    assert "--nnodes 2 --nproc-per-node 8 --node-rank 1" in text
    assert "--master-addr 10.0.0.1 --master-port 29400" in text
    assert "store_type" not in text


def test_threads_come_from_the_plan_and_the_rest_gives_way(make_plan):
    plan = make_plan(ranks=2, config={"cluster": {"cpu_threads": 3}})
    chosen = worker_environment(plan, {"OMP_NUM_THREADS": "64", "HF_HUB_OFFLINE": "0"})
    assert chosen["OMP_NUM_THREADS"] == "3"
    assert "HF_HUB_OFFLINE" not in chosen
    assert chosen["TOKENIZERS_PARALLELISM"] == "false"
    assert chosen["GLOO_SOCKET_IFNAME"].startswith("lo")
    several = worker_environment(make_plan(ranks=2, nodes=2), {})
    assert "GLOO_SOCKET_IFNAME" not in several


def test_launcher_and_console_start_without_torch():
    script = (
        "import sys, joyrlinf_core.launcher.jobs, joyrlinf_core.worker\n"
        "import joyrlinf_cli.commands.train, joyrlinf_cli.commands.resume\n"
        "import joyrlinf_cli.commands.eval, joyrlinf_cli.commands.sft\n"
        "import joyrlinf_cli.commands.runs, joyrlinf_cli.console.live\n"
        "sys.exit('torch' in sys.modules or 'mujoco' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
