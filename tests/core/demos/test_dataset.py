import numpy as np
import pytest

from joyrlinf_core.config.schema import SftConfig
from joyrlinf_core.demos import dataset, store
from joyrlinf_core.demos.lerobot import FeatureNames
from joyrlinf_core.errors import DemonstrationError
from tests.core.demos.demo_factory import TinyEnv, assert_equal, demonstration
from tests.core.demos.lerobot_factory import record, write_v3


def test_own_format_is_renumbered_by_instruction(tmp_path):
    demos = [demonstration(task=2, prompt="Task  0"), demonstration(seed=1, prompt="other")]
    store.write(tmp_path / "set", demos, env=TinyEnv(tasks=3), sft=SftConfig(), seed=0)
    (read,) = dataset.read(tmp_path / "set", TinyEnv())
    assert read.episode == (0, 100_000)
    np.testing.assert_array_equal(read.images, demos[0].images)


def test_lerobot_is_recognised(tmp_path):
    pytest.importorskip("pyarrow")
    write_v3(tmp_path, [record("task 1", 6, 0), record("wipe", 5, 1)])
    names = FeatureNames(images=("observation.images.wrist",))
    env = TinyEnv(sizes=(3, 2, (1, 32, 48, 3)))
    (read,) = dataset.read(tmp_path, env, frame_stride=3, names=names)
    assert read.episode == (1, 0)
    assert list(read.frame_steps) == [0, 3]
    with pytest.raises(DemonstrationError, match="env `tiny` has"):
        dataset.read(tmp_path, TinyEnv(), names=names)


def test_the_same_tasks_come_back_unchanged(tmp_path):
    demos = [demonstration(task=1), demonstration(task=0, seed=1)]
    store.write(tmp_path / "set", demos, env=TinyEnv(), sft=SftConfig(), seed=0)
    for left, right in zip(dataset.read(tmp_path / "set", TinyEnv()), demos, strict=True):
        assert_equal(left, right)


def test_no_demonstration_of_the_tasks(tmp_path):
    store.write(tmp_path / "set", [demonstration()], env=TinyEnv(), sft=SftConfig(), seed=0)
    (tmp_path / "none").mkdir()
    with pytest.raises(DemonstrationError, match="holds no demonstrations"):
        dataset.read(tmp_path / "none", TinyEnv())

    class OtherEnv(TinyEnv):
        @property
        def task_prompts(self):
            return ("wipe the table",)

    with pytest.raises(DemonstrationError, match=r"\['wipe the table'\]; its instructions are"):
        dataset.read(tmp_path / "set", OtherEnv())
