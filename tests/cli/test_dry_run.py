import json
import re

import pytest

TWO_NODES = """\
cluster:
  num_nodes: 2
  gpus_per_node: 8
  placement_basis: per_node
  component_placement: {"env,rollout": 0-5, actor: 6-7}
algorithm:
  group_size: 8
  update_epoch: 2
env:
  train:
    type: tests.doubles.toy:ToyEnv
    total_num_envs: 384
    max_episode_steps: 80
actor:
  micro_batch_size: 32
  gradient_accumulation_steps: 2
  precision: bf16
  model:
    model_type: tests.doubles.sized:SizedModel
    model_path: nowhere
    weights: 3000000000
    row: 40000000
    train_expert_only: true
    num_action_chunks: 10
"""


@pytest.fixture
def two_nodes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(TWO_NODES)
    return "two.yaml"


def test_tables_of_two_nodes(joyrl, two_nodes):
    result = joyrl("train", two_nodes, "--dry-run")
    assert result.code == 0, result.err
    tables, _, commands = result.out.partition("\ntorchrun")
    assert tables == (
        "placement: disaggregated, 2 nodes x 8 ranks\n"
        "  rank       node  local rank  GPU  role          envs each  groups each  env ids\n"
        "  0-5,8-13   0-1   0-5         0-5  env, rollout         32            4  0-383\n"
        "  6-7,14-15  0-1   6-7         6-7  actor                 -            -  -\n"
        "\n"
        "batch\n"
        "  E                384  envs, 48 groups of G 8\n"
        "  S                1    pipeline stages of 32 envs on each rank\n"
        "  T                8    chunk steps: 80 env steps / C 10\n"
        "  T_eff            8    R 1 x T 8\n"
        "  B                96   columns per actor: E 384 / 4 actors\n"
        "  N                768  samples per actor: T_eff x B\n"
        "  micro-batches    48   N / 32 x 2 update epochs, on each actor\n"
        "  optimizer steps  24   per update: N / (32 x 2 accumulated) = 12 x 2 update epochs\n"
        "\n"
        "shard map: who trains on which columns\n"
        "  rollout -> actor rank       columns  are its columns  groups  bytes each\n"
        "  0->6, 3->7, 8->14, 11->15   0-31     0-31                  4     165 KiB\n"
        "  1->6, 4->7, 9->14, 12->15   0-31     32-63                 4     165 KiB\n"
        "  2->6, 5->7, 10->14, 13->15  0-31     64-95                 4     165 KiB\n"
        "\n"
        "bytes sent per training step\n"
        "  trajectories  1.93 MiB\n"
        "  weight sync   6.71 GiB: 572 MiB to each rollout rank of 0-5,8-13\n"
        "\n"
        "memory of one rank, estimated without simulators, CUDA context and fragmentation\n"
        "  3000 M weights, 300 M of them trained (fsdp2), bf16; up to 32 rows per predict call\n"
        "  role     what             rank 0-5,8-13  rank 6-7,14-15  when\n"
        "  rollout  rollout copy          5.59 GiB               -  all the time\n"
        "  rollout  predict               1.19 GiB               -  while acting\n"
        "  rollout  rollout storage        165 KiB               -  host\n"
        "  actor    frozen weights               -        1.26 GiB  all the time\n"
        "  actor    trained weights              -         286 MiB  all the time\n"
        "  actor    gradients                    -         286 MiB  all the time\n"
        "  actor    optimizer state              -         572 MiB  all the time\n"
        "  actor    bf16 copy                    -         572 MiB  while computing the update\n"
        "  actor    gathered units               -        1.12 GiB  while computing the update\n"
        "  actor    activations                  -        11.9 GiB  while computing the update\n"
        "  actor    optimizer step               -         286 MiB  in the optimizer step\n"
        "  actor    rollout storage              -         494 KiB  host\n"
        "           resident              5.59 GiB        2.37 GiB\n"
        "           peak                  6.78 GiB          16 GiB\n"
        "           host                   165 KiB         494 KiB\n"
    )
    lines = [line.strip() for line in commands.splitlines()]
    for node in range(2):
        command = lines[lines.index(f"node {node}:") + 1]
        assert re.search(
            rf"torch\.distributed\.run --nnodes 2 --nproc-per-node 8 --node-rank {node} "
            r'--master-addr "\$MASTER_ADDR" --master-port 29500 -m joyrlinf_core\.worker RUN_DIR$',
            command,
        )


def test_what_is_missing_here_only_warns(joyrl, two_nodes):
    result = joyrl("train", two_nodes, "--dry-run")
    assert "nowhere" in result.err
    assert "error" not in result.err
    # Without --dry-run the same is an error.
    assert joyrl("train", two_nodes).code == 3


def test_what_this_version_cannot_run_is_said_in_the_document(joyrl):
    preset = ["train", "--preset", "libero-pi05-spatial-sync", "--dry-run"]
    first = joyrl(*preset).out.splitlines()[0]
    assert first.startswith("does not run in this version: JR701 ")
    document = json.loads(joyrl(*preset, "--json").out)
    assert (document["ok"], document["runnable"]) == (True, False)
    assert "JR701" in [one["code"] for one in document["findings"]]


def test_a_file_that_another_machine_may_have_is_no_reason_not_to_run(joyrl, two_nodes):
    one = "cluster={'gpus_per_node': 8, 'component_placement': {'env,rollout,actor': '0-7'}}"
    result = joyrl("train", two_nodes, "--dry-run", "--json", "--set", one)
    document = json.loads(result.out)
    assert document["runnable"] is True
    assert [one["code"] for one in document["findings"]] == ["JR402"]


@pytest.mark.parametrize("command", [["train", "--dry-run"], ["train"], ["estimate"]])
def test_an_invalid_config_is_one_json_document_too(joyrl, two_nodes, command):
    result = joyrl(*command, two_nodes, "--json", "--set", "actor.micro_batch_size=0")
    assert result.code == 3
    document = json.loads(result.out)
    assert (document["schema"], document["ok"]) == (1, False)
    assert ("JR011", "actor.micro_batch_size") in [
        (one["code"], one["path"]) for one in document["findings"]
    ]


def test_json_says_the_same(joyrl, two_nodes):
    result = joyrl("train", two_nodes, "--dry-run", "--json")
    document = json.loads(result.out)
    assert list(document) == [
        "schema", "ok", "runnable", "findings", "plan", "torchrun", "environment", "sft_policy",
    ]  # fmt: skip
    assert document["runnable"] is True
    assert [one["code"] for one in document["findings"]] == ["JR402"]
    plan = document["plan"]
    assert [rank["roles"] for rank in plan["ranks"][5:7]] == [["env", "rollout"], ["actor"]]
    assert len(plan["shards"]) == 12
    assert plan["shards"][1] == {
        "source": 1, "source_column": 0, "destination": 6, "destination_column": 32,
        "columns": 32, "groups": 4,
    }  # fmt: skip
    assert plan["traffic"]["weight_bytes"] == 600_000_000
    assert plan["memory"]["ranks"][1]["ranks"] == [6, 7, 14, 15]
    first, second = document["torchrun"]
    assert first[first.index("--master-addr") + 1] == "$MASTER_ADDR"
    assert second[second.index("--node-rank") + 1] == "1"
    assert document["environment"]["OMP_NUM_THREADS"].isdigit()


def test_equal_ranks_are_one_line(joyrl, two_nodes):
    result = joyrl(
        "train", two_nodes, "--dry-run",
        "--set", "cluster.component_placement={'env,rollout,actor': '0-7'}",
        "--set", "rollout.pipeline_stage_num=3",
    )  # fmt: skip
    assert result.code == 0, result.err
    table = result.out.split("\n\n")[0].splitlines()
    assert len(table) == 3
    assert table[2].split() == (
        ["0-15", "0-1", "0-7", "0-7", "env,", "rollout,", "actor", "24", "3", "0-383"]
    )
    assert "every actor trains on its own rank's columns, in process" in result.out
    assert "trajectories  0 B\n" in result.out
    assert "0 B: rollout and actor share one copy" in result.out


def test_unknown_sizes_are_said(joyrl, two_nodes):
    result = joyrl(
        "train", two_nodes, "--dry-run",
        "--set", "actor.model={'model_type': 'tests.doubles.toy:ToyModel', "
        "'num_action_chunks': 10, 'model_path': 'nowhere'}",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "unknown: policies of `tests.doubles.toy:ToyModel` do not tell" in result.out
    assert "trajectories  unknown" in result.out
