"""The launcher of one node as a process: `node_launcher.py SPEC`, SPEC a JSON file.

It stands for `joyrl train`, with the worker of `fake_worker.py`: the same `Jobs`, the same exit
code and error lines. What it was told and how the run ended it writes as JSON lines to standard
output.
"""

import json
import os
import sys
from pathlib import Path

from joyrlinf_cli.console.summary import failure_lines, result_lines
from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import JoyrlError
from joyrlinf_core.launcher import jobs
from joyrlinf_core.launcher.nodes.settings import NodeOptions
from joyrlinf_core.plan.build import assemble
from joyrlinf_core.plan.run_plan import BatchPlan, Placement


def tell(kind, text):
    print(json.dumps([kind, text]), flush=True)


class Listener:
    def __init__(self, speaker):
        tell("speaker", speaker)

    def on_record(self, record):
        tell("event", record.event.kind)

    def on_notice(self, text):
        tell("notice", text)

    def on_tick(self):
        pass

    def close(self):
        pass


def plan_of(config, job, args=None):
    """Stands for `build_plan`, whose rules know nothing of the fake parts."""
    cluster = config.cluster
    every = tuple(range(cluster.num_nodes * cluster.gpus_per_node))
    actors = every[-1:] if SPEC.get("speaker_is_last") else every
    placement = Placement(
        mode="hybrid", world_size=len(every), num_nodes=cluster.num_nodes,
        ranks_per_node=cluster.gpus_per_node, ranks_per_node_inferred=False, env_ranks=every,
        rollout_ranks=every, actor_ranks=actors,
    )  # fmt: skip
    batch = BatchPlan(**dict.fromkeys(BatchPlan.model_fields, 1))
    return assemble(job, {**(args or {}), **SPEC["args"]}, config, placement, batch)


def main():
    config = Config.model_validate(SPEC["config"])
    jobs.build_plan = plan_of
    jobs.check_ready = lambda config: None
    launcher = jobs.Jobs(
        lambda plan, run_dir, speaker: Listener(speaker),
        lambda text: tell("said", text),
        [str(Path(__file__).parents[1] / "fake_worker.py")],
        NodeOptions(**SPEC["options"]),
    )
    try:
        result = launcher.train(config)
    except JoyrlError as error:
        tell("error", f"{error.message}\n  fix: {error.fix}")
        return int(error.exit_code)
    tell("run_dir", str(result.run_dir.root))
    digest = result.outcome.digest
    if digest is not None:
        tell("failure", "\n".join(failure_lines(digest)))
    else:
        tell("result", "\n".join(result_lines(result, "train", 1.0)))
    return result.outcome.exit_code


if __name__ == "__main__":
    SPEC = json.loads(Path(sys.argv[1]).read_text())
    os.chdir(SPEC["cwd"])
    sys.exit(main())
