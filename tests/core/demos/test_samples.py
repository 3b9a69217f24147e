import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joyrlinf_core.demos.samples import build
from joyrlinf_core.errors import DemonstrationError
from tests.core.demos.demo_factory import demonstration


def reference(demos, horizon):
    """Plain loops: one row per picture."""
    rows = []
    for demo in demos:
        for frame, step in enumerate(demo.frame_steps):
            actions, valid = [], []
            for h in range(horizon):
                inside = step + h < len(demo.actions)
                actions.append(demo.actions[step + h] if inside else demo.actions[-1])
                valid.append(inside)
            rows.append((demo.images[frame], demo.state[step], demo.episode.task, actions, valid))
    return rows


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), min_size=1, max_size=4),
    horizon=st.integers(1, 12),
)
def test_samples_equal_plain_loops(sizes, horizon):
    demos = [demonstration(n, stride, task=i, seed=i) for i, (n, stride) in enumerate(sizes)]
    samples = build(iter(demos), horizon)
    rows = reference(demos, horizon)
    assert len(samples) == len(rows)
    for i, (image, state, task, actions, valid) in enumerate(rows):
        np.testing.assert_array_equal(samples.images[i], image)
        np.testing.assert_array_equal(samples.state[i], state)
        assert samples.task[i] == task
        np.testing.assert_array_equal(samples.actions[i], np.array(actions))
        np.testing.assert_array_equal(samples.valid[i], np.array(valid))


def test_dtypes_and_shapes():
    samples = build([demonstration(7), demonstration(5)], horizon=4)
    assert (samples.images.dtype, samples.images.shape) == (np.uint8, (5, 1, 6, 8, 3))
    assert (samples.state.dtype, samples.state.shape) == (np.float32, (5, 5))
    assert (samples.task.dtype, samples.task.shape) == (np.int64, (5,))
    assert (samples.actions.dtype, samples.actions.shape) == (np.float32, (5, 4, 4))
    assert (samples.valid.dtype, samples.valid.shape) == (np.bool_, (5, 4))


def test_labels_are_the_clean_actions():
    demo = demonstration()
    samples = build([demo], horizon=2)
    np.testing.assert_array_equal(samples.actions[0], demo.actions[:2])
    assert not np.array_equal(samples.actions[0], demo.executed[:2])


def test_the_end_is_masked():
    valid = build([demonstration(7, stride=3)], horizon=3).valid
    np.testing.assert_array_equal(valid, [[True] * 3, [True] * 3, [True, False, False]])


def test_sizes_that_differ_are_named():
    other = demonstration(state=np.zeros((7, 9), np.float32))
    with pytest.raises(DemonstrationError, match=r"demonstration 1: state .*\(9,\).*\(5,\)"):
        build([demonstration(), other], horizon=2)


def test_nothing_to_train_on():
    empty = demonstration(
        frame_steps=np.zeros(0, np.int64), images=np.zeros((0, 1, 6, 8, 3), np.uint8)
    )
    with pytest.raises(DemonstrationError, match="1 demonstrations hold no picture"):
        build([empty], horizon=2)
    with pytest.raises(DemonstrationError, match="0 demonstrations"):
        build([], horizon=2)
