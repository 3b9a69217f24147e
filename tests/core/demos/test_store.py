import json
import pickle
import re

import numpy as np
import pytest

from joyrlinf_core.demos import store
from joyrlinf_core.demos.store import DemoSource, open_demos, write_demos
from joyrlinf_core.errors import DemonstrationError
from tests.core.demos.demo_factory import assert_equal, demonstration


def source(**changes):
    values = {
        "env_type": "metaworld",
        "prompts": ("task 0", "task 1"),
        "attempted": (3, 4),
        "seed": 5,
        "expert_noise": 0.3,
        "frame_stride": 3,
        "steps_after_success": 10,
    }
    return DemoSource(**(values | changes))


def three_demos():
    return [demonstration(7, task=0, seed=0), demonstration(5, 2, 1, 1), demonstration(9, 4, 1, 2)]


def test_round_trip_is_exact(tmp_path):
    demos = three_demos()
    write_demos(tmp_path / "deep" / "set", iter(demos), source())
    read = open_demos(tmp_path / "deep" / "set")
    assert len(read) == 3
    for written, again in zip(demos, read, strict=True):
        assert_equal(written, again)


def test_meta_counts_what_lies_there(tmp_path):
    failed = demonstration(6, task=1, seed=3, success=False)
    meta = write_demos(tmp_path / "set", [*three_demos(), failed], source()).meta
    assert meta == open_demos(tmp_path / "set").meta
    assert meta.episodes == (1, 3)
    assert meta.success_rate == (1 / 3, 2 / 4)
    assert (meta.num_episodes, meta.num_steps, meta.num_frames) == (4, 27, 3 + 3 + 3 + 2)
    assert (meta.state_dim, meta.action_dim, meta.image_shape) == (5, 4, (1, 6, 8, 3))
    content = json.loads((tmp_path / "set" / "meta.json").read_text())
    assert content["schema_version"] == 1
    assert content["source"]["expert_noise"] == 0.3


def test_a_task_that_was_never_tried_has_rate_zero(tmp_path):
    meta = write_demos(tmp_path / "set", [demonstration()], source(attempted=(2, 0))).meta
    assert meta.success_rate == (0.5, 0.0)


def test_a_failure_on_the_way_leaves_nothing(tmp_path):
    def breaks_after_one():
        yield demonstration()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_demos(tmp_path / "set", breaks_after_one(), source())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_directory_is_left_alone(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine.txt").write_text("kept")
    with pytest.raises(DemonstrationError, match="exists already"):
        write_demos(tmp_path / "set", three_demos(), source())
    assert (tmp_path / "set" / "mine.txt").read_text() == "kept"


def test_no_demonstration_is_an_error_with_a_fix(tmp_path):
    with pytest.raises(DemonstrationError, match="7 episodes attempted") as error:
        write_demos(tmp_path / "set", [], source())
    assert "expert_noise" in error.value.fix


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"state": np.zeros((7, 5))}, "state is float64"),
        ({"actions": np.zeros((6, 4), np.float32)}, "actions (6, 4) does not fit 7 states"),
        ({"executed": np.zeros((7, 3), np.float32)}, "executed (7, 3) differs from actions (7, 4)"),
        ({"frame_steps": np.array([0, 3, 7])}, "frame_steps must rise within [0, 7)"),
        ({"frame_steps": np.array([0, 3, 3])}, "frame_steps must rise within [0, 7)"),
        ({"frame_steps": np.array([0, 3])}, "3 images for 2 frame_steps"),
        ({"images": np.zeros((3, 1, 6, 8, 4), np.uint8)}, "images are not RGB"),
        ({"state": np.full((7, 5), np.nan, np.float32)}, "NaN"),
    ],
)
def test_a_malformed_demonstration_is_named(tmp_path, changes, said):
    with pytest.raises(DemonstrationError, match=re.escape(said)) as error:
        write_demos(tmp_path / "set", [demonstration(), demonstration(**changes)], source())
    assert "demonstration 1" in str(error.value)


def test_sizes_must_not_change_between_episodes(tmp_path):
    other = demonstration(images=np.zeros((3, 2, 6, 8, 3), np.uint8))
    with pytest.raises(DemonstrationError, match="those before are"):
        write_demos(tmp_path / "set", [demonstration(), other], source())


def test_a_task_outside_the_list_is_an_error(tmp_path):
    with pytest.raises(DemonstrationError, match="task 2 of 2 tasks"):
        write_demos(tmp_path / "set", [demonstration(task=2)], source())


def test_no_such_directory(tmp_path):
    with pytest.raises(DemonstrationError, match="holds no demonstrations"):
        open_demos(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "JSON"), ('{"schema_version": 2}', "schema_version"), ('{"a": 1}', "source: Field")],
)
def test_an_invalid_meta_json_is_explained(tmp_path, text, said):
    write_demos(tmp_path / "set", three_demos(), source())
    (tmp_path / "set" / "meta.json").write_text(text)
    with pytest.raises(DemonstrationError, match=said):
        open_demos(tmp_path / "set")


def test_a_missing_episode_is_found_on_opening(tmp_path):
    write_demos(tmp_path / "set", three_demos(), source())
    (tmp_path / "set" / "episode_000001.npz").unlink()
    with pytest.raises(DemonstrationError, match=r"lacks 1 of 3 episodes.*episode_000001"):
        open_demos(tmp_path / "set")


def test_a_truncated_or_altered_episode_is_found_on_reading(tmp_path):
    demos = write_demos(tmp_path / "set", three_demos(), source())
    path = tmp_path / "set" / "episode_000000.npz"
    whole = path.read_bytes()
    path.write_bytes(whole[:200])
    with pytest.raises(DemonstrationError, match="damaged"):
        demos[0]
    altered = bytearray(whole)
    at = whole.index(demos[1].prompt.encode("utf-32-le")[:4])  # somewhere inside the prompt
    altered[at] ^= 0xFF
    path.write_bytes(bytes(altered))
    with pytest.raises(DemonstrationError, match="damaged"):
        demos[0]


def test_a_pickled_array_is_refused_and_not_executed(tmp_path):
    demos = write_demos(tmp_path / "set", three_demos(), source())
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
        demos[0]
    assert not executed.exists()


def test_an_episode_of_another_set_does_not_fit(tmp_path):
    demos = write_demos(tmp_path / "set", three_demos(), source())
    wide = demonstration(state=np.zeros((7, 6), np.float32))
    write_demos(tmp_path / "other", [wide], source())
    (tmp_path / "other" / "episode_000000.npz").replace(tmp_path / "set" / "episode_000000.npz")
    with pytest.raises(DemonstrationError, match=r"meta.json says \(5, 4"):
        demos[0]


def test_a_write_error_says_where_and_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DemonstrationError, match=r"can.t write .*set"):
        write_demos(tmp_path / "file" / "set", three_demos(), source())


def test_every_field_of_a_demonstration_is_stored(tmp_path):
    fields = set(demonstration().__dataclass_fields__)
    assert set(store._LAYOUT) == fields
