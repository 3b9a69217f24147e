"""JR21x: how processes are started, beside their placement."""

from __future__ import annotations

from collections.abc import Iterator

from joyrlinf_core.errors import Finding
from joyrlinf_core.plan.rules.rule import CLUSTER, RuleContext, finding, rule
from joyrlinf_core.plan.traffic import weight_receivers
from joyrlinf_core.plan.weight_sync import on_one_gpu

_MPS = "launcher.mps"
_WEIGHT_SYNC = "algorithm.weight_sync"
_PAIR = {"cluster.component_placement": {"env,rollout": "0", "actor": "1"}}


@rule(
    "JR212",
    reads=(_MPS, "cluster.device", *CLUSTER),
    passes={_MPS: True, **_PAIR},
    fails={_MPS: True, "cluster.component_placement": {"env,rollout,actor": "0"}},
)
def mps_pairs_processes(context: RuleContext) -> Iterator[Finding]:
    """With `launcher.mps` the processes of a node come in pairs, on GPUs, one learner in each.

    Local ranks r and r + half are on one GPU, so that a node has an even number of them. Actors
    average their gradients through NCCL, which refuses two ranks on one GPU.

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
    elif pair := on_one_gpu(placement, set(placement.actor_ranks), mps=True):
        message = f"ranks {pair[0]} and {pair[1]} share a GPU and are both actors"
        changes = ({_MPS: False},)
    else:
        return
    otherwise = "an even number of processes a node, and one actor at most in each pair"
    fix = context.fix("JR212", *changes, otherwise=otherwise)
    yield finding("JR212", (_MPS, "cluster.gpus_per_node"), message, fix)


@rule(
    "JR213",
    reads=(_WEIGHT_SYNC, _MPS, "cluster.device", *CLUSTER),
    passes={_WEIGHT_SYNC: "nccl", "cluster.device": "cuda", **_PAIR},
    fails={_WEIGHT_SYNC: "nccl", "cluster.device": "cpu", **_PAIR},
)
def nccl_needs_a_gpu_for_each(context: RuleContext) -> Iterator[Finding]:
    """`weight_sync: nccl` needs a GPU of its own for every rank that sends or gets weights.

    NCCL moves data between GPUs and refuses two processes on one; `gloo` goes through host memory.
    `auto` takes NCCL where it can be had, else Gloo.

    Example: with `launcher.mps: true`, where an actor and a rollout rank share each GPU, `auto`.
    """
    config, placement = context.config, context.placement
    if config.algorithm.weight_sync != "nccl" or placement is None:
        return
    receivers = weight_receivers(placement, sharded=False)
    ranks = {*placement.actor_ranks[:1], *receivers}
    pair = on_one_gpu(placement, ranks, mps=config.launcher.mps)
    if config.cluster.device == "cpu":
        path, why = "cluster.device", "`cluster.device` is cpu"
    elif receivers and pair is not None:
        path, why = _MPS, f"ranks {pair[0]} and {pair[1]} share a GPU (`launcher.mps`)"
    else:
        return
    message = f"`weight_sync: nccl` moves weights between GPUs, but {why}"
    fix = context.fix("JR213", {_WEIGHT_SYNC: "auto"}, otherwise="take `auto`")
    yield finding("JR213", (_WEIGHT_SYNC, path), message, fix)
