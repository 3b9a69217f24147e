"""Random changes of a config file: drop, duplicate, retype, rename, rescale, add and move keys."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from joyrlinf_core import registry
from joyrlinf_core.config.dump import to_yaml
from joyrlinf_core.config.keys import all_keys

STRANGE: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    2,
    -1,
    7,
    1.5,
    1e-5,
    -0.0,
    1e300,
    2**62,
    2**70,
    float("nan"),
    float("inf"),
    "",
    "text",
    "yes",
    "1e-5",
    "4",
    "12:30",
    "all",
    "0-3",
    "0-1,2",
    "3-0",
    "0-99999999",
    "no.such:module",
    "tests.doubles.toy:ToyEnv",
    "/no/such/path",
    "a\nb",
    "\x1b[31mred",
    [],
    [1],
    ["text", None],
    [[1]],
    {},
    {"key": 1},
    {"type": "metaworld"},
]
AIMED: dict[str, list[Any]] = {
    "algorithm.adv_type": ["grpo", "gae"],
    "algorithm.loss_type": ["actor", "actor_critic"],
    "algorithm.reward_type": ["chunk_level", "action_level"],
    "algorithm.logprob_type": ["chunk_level", "action_level", "token_level"],
    "algorithm.pipeline_mode": ["sync", "async"],
    "algorithm.filter_rewards": [True, False],
    "algorithm.entropy_bonus": [0.0, 0.01],
    "algorithm.group_size": [1, 2, 4, 8, 16],
    "actor.model.add_value_head": [True, False],
    "actor.model.num_action_chunks": [1, 2, 4, 5, 8, 10],
    "actor.micro_batch_size": [1, 2, 3, 8, 30, 32, 64],
    "actor.gradient_accumulation_steps": [1, 2, 3, 4, 20],
    "rollout.pipeline_stage_num": [1, 2, 3, 4],
    "env.train.total_num_envs": [8, 16, 24, 64, 96, 120, 256],
    "env.train.max_episode_steps": [1, 40, 50, 60, 80, 400],
    "env.train.max_steps_per_rollout_epoch": [None, 20, 40, 80, 160],
    "env.train.rollout_epoch": [1, 2, 3, 7],
    "env.train.auto_reset": [True, False],
    "env.eval.total_num_envs": [1, 2, 8, 64],
    "env.eval.num_episodes": [None, 1, 50, 5000],
    "cluster.num_nodes": [1, 2, 3],
    "cluster.gpus_per_node": [None, 1, 2, 4, 8],
    "cluster.placement_basis": ["global", "per_node"],
    "cluster.component_placement": [
        {"env,rollout,actor": "0"},
        {"env,rollout,actor": "all"},
        {"env,rollout,actor": "0-3"},
        {"env,rollout": "0-3", "actor": "4-7"},
        {"env,rollout": "0-2", "actor": "3"},
        {"env": "0", "rollout": "1-2", "actor": "3"},
        {"env": "0-1", "rollout": "2", "actor": "all"},
        {"env,rollout": "0-1", "actor": "0-3"},
        {"env,rollout": "0,2", "actor": "1,3"},
    ],
}
"""Values that make sense, of the keys that a plan is made of."""

FACTORS = [-1, 0, 0.5, 1 / 3, 2, 3, 5, 7, 10, 1000, 1_000_003, 10**12]

KINDS = ["drop", "duplicate", "retype", "rename", "rescale", "add", "move", *["aimed"] * 3]

Path = tuple[str, ...]


def paths(data: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every key."""
    if isinstance(data, dict):
        for name, child in data.items():
            yield (*path, name)
            yield from paths(child, (*path, name))


def at(data: Any, path: Path) -> Any:
    """Return the value at a path."""
    for name in path:
        data = data[name]
    return data


def put(data: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at a path; mappings on the way are made."""
    for name in path[:-1]:
        if not isinstance(data.get(name), dict):
            data[name] = {}
        data = data[name]
    data[path[-1]] = copy.deepcopy(value)


def rescaled(value: Any, factor: float) -> Any:
    """Return a number, or the numbers of a list, times a factor; anything else as it is."""
    if isinstance(value, list):
        return [rescaled(item, factor) for item in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return int(value * factor) if isinstance(value, int) else value * factor


@st.composite
def mutated(draw: st.DrawFn, sources: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Draw the text of a changed config file.

    Args:
        draw: Of hypothesis.
        sources: Name of a preset -> (what its file holds, its resolved config).
    """
    name = draw(st.sampled_from(sorted(sources)))
    written, resolved = sources[name]
    data = copy.deepcopy(written)
    duplicate = False
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        # Any key of the resolved config can be set; only written ones can be dropped or renamed.
        anywhere = kind in ("retype", "rescale")
        known = [one for one in paths(resolved if anywhere else data) if one]
        path = draw(st.sampled_from(known)) if known else ("runner",)
        if kind == "drop" and known:
            del at(data, path[:-1])[path[-1]]
        elif kind == "duplicate":
            duplicate = True
        elif kind == "retype":
            put(data, path, draw(strange_values(path)))
        elif kind == "rename" and known:
            parent = at(data, path[:-1])
            parent[draw(new_names(path))] = parent.pop(path[-1])
        elif kind == "rescale":
            put(data, path, rescaled(at(resolved, path), draw(st.sampled_from(FACTORS))))
        elif kind == "aimed":
            target = draw(st.sampled_from(sorted(AIMED)))
            put(data, tuple(target.split(".")), draw(st.sampled_from(AIMED[target])))
        elif kind == "add":
            target = draw(st.sampled_from(all_keys(resolved)))
            put(data, tuple(target.split(".")), draw(strange_values(path)))
        elif kind == "move" and known:
            value = at(data, path[:-1]).pop(path[-1])
            put(data, draw(st.sampled_from(known))[:1] + path[-1:], value)
    return _text(draw, data, duplicate=duplicate)


def strange_values(path: Path) -> st.SearchStrategy[Any]:
    """Values that a key may not expect, and names of classes for the keys that take one."""
    found = st.sampled_from(STRANGE)
    kinds: dict[str, registry.Kind] = {
        "type": "envs",
        "model_type": "policies",
        "adv_type": "advantages",
        "loss_type": "losses",
    }
    if path[-1] in kinds:
        found = found | st.sampled_from(registry.names(kinds[path[-1]]))
    return found


def new_names(path: Path) -> st.SearchStrategy[str]:
    """Names near the old one, and names from elsewhere."""
    old = path[-1]
    return st.sampled_from(
        [old[1:] or "x", old + "s", old[::-1], "seed", "type", "total_num_envs", "a.b", "1", "null"]
    )


def _text(draw: st.DrawFn, data: dict[str, Any], *, duplicate: bool) -> str:
    text = to_yaml(data)
    lines = text.splitlines(keepends=True)
    if duplicate and lines:
        line = draw(st.sampled_from(range(len(lines))))
        lines.insert(draw(st.sampled_from([line, len(lines)])), lines[line])
    return "".join(lines)
