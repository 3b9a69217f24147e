import json
import pickle
import re

import numpy as np
import pytest

from joyrlinf_core.config.schema import EpisodeId, SftConfig
from joyrlinf_core.demos import checks, store
from joyrlinf_core.errors import DemonstrationError
from tests.core.demos.demo_factory import TinyEnv, assert_equal, demonstration

ENV = TinyEnv()
SFT = SftConfig(expert_noise=0.3, frame_stride=3, steps_after_success=10)


def write(directory, demos, **changes):
    return store.write(directory, demos, **({"env": ENV, "sft": SFT, "seed": 5} | changes))


def three_demos():
    return [demonstration(7, task=0, seed=0), demonstration(5, 2, 1, 1), demonstration(9, 4, 1, 2)]


def test_round_trip_is_exact(tmp_path):
    demos = three_demos()
    write(tmp_path / "deep" / "set", iter(demos))
    read = store.read(tmp_path / "deep" / "set")
    assert len(read) == 3
    for written, again in zip(demos, read, strict=True):
        assert_equal(written, again)


def test_meta_counts_what_lies_there(tmp_path):
    attempted = [EpisodeId(0, i) for i in range(3)] + [EpisodeId(1, i) for i in range(4)]
    failed = demonstration(6, task=1, seed=3, success=False)
    meta = write(tmp_path / "set", [*three_demos(), failed], attempted=attempted)
    assert meta == store.read_meta(tmp_path / "set")
    assert meta.attempted == (3, 4)
    assert meta.episodes == (1, 3)
    assert meta.success_rate == (1 / 3, 2 / 4)
    assert (meta.num_episodes, meta.num_steps, meta.num_frames) == (4, 27, 3 + 3 + 3 + 2)
    assert meta.sizes == (5, 4, (1, 6, 8, 3))
    content = json.loads((tmp_path / "set" / "meta.json").read_text())
    assert content["schema_version"] == 1
    assert (content["env_type"], content["prompts"]) == ("tiny", ["task 0", "task 1"])
    assert (content["seed"], content["expert_noise"]) == (5, 0.3)


def test_success_rate_of_tasks_that_were_not_tried_or_counted(tmp_path):
    one = write(tmp_path / "one", [demonstration()], attempted=[EpisodeId(0, 1), EpisodeId(0, 2)])
    assert one.success_rate == (0.5, 0.0)
    unknown = write(tmp_path / "two", [demonstration()])
    assert unknown.attempted is None
    assert unknown.success_rate is None


def test_an_empty_set_is_a_set(tmp_path):
    assert write(tmp_path / "set", []).num_episodes == 0
    assert store.read(tmp_path / "set") == []


def test_a_failure_on_the_way_leaves_nothing(tmp_path):
    def breaks_after_one():
        yield demonstration()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "set", breaks_after_one())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.txt").write_text("kept")
    with pytest.raises(DemonstrationError, match="exists already"):
        write(tmp_path / "set", three_demos())
    assert (tmp_path / "set" / "mine.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": np.zeros((7, 5))}, "state is float64"),
        ({"actions": np.zeros((6, 4), np.float32)}, "actions (6, 4) do not fit 7 states"),
        ({"executed": np.zeros((7, 3), np.float32)}, "executed (7, 3) differ from actions (7, 4)"),
        ({"frame_steps": np.array([0, 3, 7])}, "frame_steps must rise within [0, 7)"),
        ({"frame_steps": np.array([0, 3, 3])}, "frame_steps must rise within [0, 7)"),
        ({"frame_steps": np.array([0, 3])}, "3 images for 2 frame_steps"),
        ({"images": np.zeros((3, 1, 6, 8, 4), np.uint8)}, "images are not RGB"),
        ({"state": np.full((7, 5), np.nan, np.float32)}, "NaN"),
    ],
)
def test_a_malformed_demonstration_is_named(tmp_path, changes, said):
    with pytest.raises(DemonstrationError, match=re.escape(said)) as error:
        write(tmp_path / "set", [demonstration(), demonstration(**changes)])
    assert "demonstration 1" in str(error.value)


def test_sizes_are_those_of_the_env(tmp_path):
    other = demonstration(images=np.zeros((3, 2, 6, 8, 3), np.uint8))
    with pytest.raises(DemonstrationError, match=r"demonstration 1: .*\(2, 6, 8, 3\).*the env has"):
        write(tmp_path / "set", [demonstration(), other])


def test_a_task_outside_the_list_is_an_error(tmp_path):
    with pytest.raises(DemonstrationError, match="task 2 of 2 tasks"):
        write(tmp_path / "set", [demonstration(task=2)])


def test_no_such_directory(tmp_path):
    with pytest.raises(DemonstrationError, match="holds no demonstrations"):
        store.read(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "JSON"), ('{"schema_version": 2}', "schema_version"), ('{"a": 1}', "env_type: Field")],
)
def test_an_invalid_meta_json_is_explained(tmp_path, text, said):
    write(tmp_path / "set", three_demos())
    (tmp_path / "set" / "meta.json").write_text(text)
    with pytest.raises(DemonstrationError, match=said):
        store.read(tmp_path / "set")


def test_a_missing_episode_is_named(tmp_path):
    write(tmp_path / "set", three_demos())
    (tmp_path / "set" / "episode_000001.npz").unlink()
    with pytest.raises(DemonstrationError, match=r"episode_000001.npz is missing.*3 episodes"):
        store.read(tmp_path / "set")


def test_a_truncated_or_altered_episode_is_found(tmp_path):
    write(tmp_path / "set", three_demos())
    path = tmp_path / "set" / "episode_000000.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    with pytest.raises(DemonstrationError, match="damaged"):
        store.read(tmp_path / "set")
    altered = bytearray(whole)
    altered[whole.index("task".encode("utf-32-le"))] ^= 0xFF
    path.write_bytes(bytes(altered))
    with pytest.raises(DemonstrationError, match="damaged"):
        store.read(tmp_path / "set")


def test_a_pickled_array_is_refused_and_not_executed(tmp_path):
    write(tmp_path / "set", three_demos())
    path = tmp_path / "set" / "episode_000000.npz"
    with np.load(path) as file:
        arrays = dict(file)
    executed = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return (executed.touch, ())

    pickle.loads(pickle.dumps(Evil()))
    assert executed.exists(), "the attack works where pickles are loaded"
    executed.unlink()
    arrays["prompt"] = np.array(Evil(), dtype=object)
    np.savez(path, allow_pickle=True, **arrays)
    with pytest.raises(DemonstrationError, match="damaged"):
        store.read(tmp_path / "set")
    assert not executed.exists()


def test_an_episode_of_another_set_does_not_fit(tmp_path):
    write(tmp_path / "set", three_demos())
    wide = demonstration(state=np.zeros((7, 6), np.float32))
    write(tmp_path / "other", [wide], env=TinyEnv(sizes=(6, 4, (1, 6, 8, 3))))
    (tmp_path / "other" / "episode_000000.npz").replace(tmp_path / "set" / "episode_000000.npz")
    with pytest.raises(DemonstrationError, match=r"meta.json has \(5, 4"):
        store.read(tmp_path / "set")


def test_a_write_error_says_where_and_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DemonstrationError, match=r"can.t write .*set"):
        write(tmp_path / "file" / "set", three_demos())


def test_every_array_of_a_demonstration_is_stored():
    fields = set(demonstration().__dataclass_fields__)
    assert set(checks.ARRAYS) | {"episode", "prompt", "success"} == fields
