"""JR21x: how processes are started, beside their placement."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule

_MPS = "launcher.mps"
_PAIR = {"cluster.component_placement": {"env,rollout": "0", "actor": "1"}}


@rule(
    "JR211",
    reads=(_MPS,),
    passes={_MPS: False},
    fails={_MPS: True, **_PAIR},
)
def mps_is_not_there_yet(context: RuleContext) -> Iterator[Finding]:
    """In this version two processes on one GPU can be planned but not run.

    With `launcher.mps` they share it through CUDA MPS. `joyrl validate` and `joyrl train --dry-run`
    take such a config; starting it is an error until a later version runs it.

    Example: with `mps: false` every process has a GPU of its own.
    """
    if context.config.launcher.mps:
        message = "this version plans but does not run two processes on one GPU (`mps: true`)"
        fix = context.fix("JR211", {_MPS: False}, otherwise="one GPU a process, `mps: false`")
        yield finding("JR211", (_MPS,), message, fix, context.runtime_severity)


@rule(
    "JR212",
    reads=(_MPS, "cluster.device", *CLUSTER),
    passes={_MPS: True, **_PAIR},
    fails={_MPS: True, "cluster.component_placement": {"env,rollout,actor": "0"}},
)
def mps_pairs_processes(context: RuleContext) -> Iterator[Finding]:
    """With `launcher.mps` the processes of a node come in pairs, on GPUs.

    Local ranks r and r + half are on one GPU, so that a node has an even number of them.

    Example: `env,rollout: 0-7` with `actor: 8-15` and `gpus_per_node: 16` are 8 GPUs, each with a
    process that acts and one that learns.
    """
    placement, cluster = context.placement, context.config.cluster
    if placement is None or not context.config.launcher.mps:
        return
    if cluster.device == "cpu":
        message = "`mps: true` is about GPUs, but `cluster.device` is cpu"
        changes = ({_MPS: False}, {"cluster.device": "cuda"})
    elif placement.ranks_per_node % 2:
        message = f"{placement.ranks_per_node} processes a node do not pair up on GPUs"
        changes = ({_MPS: False},)
    else:
        return
    fix = context.fix("JR212", *changes, otherwise="an even number of processes a node")
    yield finding("JR212", (_MPS, "cluster.gpus_per_node"), message, fix)
