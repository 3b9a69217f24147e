import json
import sys

import numpy as np
import pytest

from joyrlinf_core.demos.lerobot import FeatureNames, LeRobotDataset, is_lerobot
from joyrlinf_core.errors import DemonstrationError, MissingExtraError
from tests.core.demos.demo_factory import assert_equal
from tests.core.demos.lerobot_factory import CAMERAS, record, write_v2, write_v3

pytest.importorskip("pyarrow", reason="the extra 'lerobot' is not installed")

WRITERS = {"v2.1": write_v2, "v3.0": write_v3}


@pytest.fixture(scope="module")
def episodes():
    return [
        record("Open the  door", 9, 0),
        record("push it", 6, 1),
        record("Open the  door", 11, 2),
    ]


@pytest.fixture(params=WRITERS)
def layout(request):
    return request.param


@pytest.fixture
def dataset(tmp_path, episodes, layout):
    WRITERS[layout](tmp_path / "set", episodes)
    return tmp_path / "set"


def test_an_episode_is_read_exactly(dataset, episodes):
    demos = list(LeRobotDataset(dataset).demonstrations(frame_stride=4))
    assert len(demos) == len(episodes)
    for index, (demo, episode) in enumerate(zip(demos, episodes, strict=True)):
        assert demo.prompt == episode.task
        assert demo.episode == ((0, 1, 0)[index], index)
        assert demo.success
        np.testing.assert_array_equal(demo.state, episode.state)
        np.testing.assert_array_equal(demo.actions, episode.action)
        np.testing.assert_array_equal(demo.executed, episode.action)
        np.testing.assert_array_equal(demo.frame_steps, np.arange(0, len(episode.state), 4))
        for view, camera in enumerate(CAMERAS):
            np.testing.assert_array_equal(demo.images[:, view], episode.pictures[camera][::4])


def test_films_are_decoded_at_the_right_steps(tmp_path, episodes, layout):
    WRITERS[layout](tmp_path / "set", episodes, video=True)
    for demo, episode in zip(
        LeRobotDataset(tmp_path / "set").demonstrations(frame_stride=2), episodes, strict=True
    ):
        assert demo.images.shape == (len(demo.frame_steps), 2, 32, 48, 3)
        for view, camera in enumerate(CAMERAS):
            shown = demo.images[:, view].astype(int)
            filmed = episode.pictures[camera][::2].astype(int)
            assert np.abs(shown - filmed).max() <= 8, "H.264 is lossy, but not by that much"
            wrong = np.abs(shown - np.roll(filmed, 1, axis=0)).reshape(len(shown), -1).max(axis=1)
            assert wrong.min() > 8, "neighbours differ, so a shift by one would show"


def test_both_layouts_hold_the_same(tmp_path, episodes):
    write_v2(tmp_path / "two", episodes)
    write_v3(tmp_path / "three", episodes)
    two, three = LeRobotDataset(tmp_path / "two"), LeRobotDataset(tmp_path / "three")
    assert two.prompts == three.prompts == ("Open the  door", "push it")
    assert two.cameras == three.cameras == CAMERAS
    for left, right in zip(two.demonstrations(), three.demonstrations(), strict=True):
        assert_equal(left, right)


def test_prompts_choose_and_number_the_tasks(dataset):
    demos = list(LeRobotDataset(dataset).demonstrations(["wipe", "open the door"]))
    assert [demo.episode for demo in demos] == [(1, 0), (1, 2)]


def test_no_matching_task_lists_what_there_is(dataset):
    with pytest.raises(DemonstrationError, match=r"\['wipe'\].*'push it'"):
        next(LeRobotDataset(dataset).demonstrations(["wipe"]))


def test_features_can_be_named(dataset, episodes):
    names = FeatureNames(images=("observation.images.wrist",), state="action", action="action")
    demo = next(LeRobotDataset(dataset, names).demonstrations())
    np.testing.assert_array_equal(demo.state, episodes[0].action)
    np.testing.assert_array_equal(demo.images[:, 0], episodes[0].pictures[CAMERAS[1]])


def test_unknown_features_are_listed_with_those_that_exist(dataset):
    with pytest.raises(DemonstrationError, match=r"no feature state, cam\*; it has observation"):
        LeRobotDataset(dataset, FeatureNames(state="state", images=("cam*",)))


def test_is_lerobot(tmp_path, dataset):
    assert is_lerobot(dataset)
    assert not is_lerobot(tmp_path)


def test_not_a_data_set(tmp_path):
    with pytest.raises(DemonstrationError, match=r"meta/info.json is missing"):
        LeRobotDataset(tmp_path)


def edit_info(directory, **changes):
    path = directory / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_an_unknown_version_is_refused(dataset):
    edit_info(dataset, codebase_version="v1.6")
    with pytest.raises(DemonstrationError, match=r"'v1.6'; joyrl reads v2.0, v2.1, v3.0"):
        LeRobotDataset(dataset)


def test_a_path_that_leads_out_is_refused(dataset):
    edit_info(dataset, data_path="../../secret.parquet")
    with pytest.raises(DemonstrationError, match="leads out of the data set"):
        LeRobotDataset(dataset)


def test_missing_and_damaged_files_are_named(dataset):
    path = sorted(dataset.glob("data/**/*.parquet"))[0]
    path.write_bytes(b"PAR1 is not enough")
    with pytest.raises(DemonstrationError, match=path.name):
        list(LeRobotDataset(dataset).demonstrations())
    path.unlink()
    with pytest.raises(DemonstrationError, match=f"{path.name} is missing"):
        list(LeRobotDataset(dataset).demonstrations())


def test_an_incomplete_episode_list_is_an_error(tmp_path, episodes):
    write_v2(tmp_path, episodes)
    path = tmp_path / "meta/episodes.jsonl"
    path.write_text(path.read_text().replace('"tasks"', '"task"', 1))
    with pytest.raises(DemonstrationError, match="lacks an entry, or it is wrong: 'tasks'"):
        LeRobotDataset(tmp_path)


def test_a_wrong_length_is_an_error(tmp_path, episodes):
    write_v2(tmp_path, episodes)
    path = tmp_path / "meta/episodes.jsonl"
    path.write_text(path.read_text().replace('"length": 6', '"length": 7'))
    with pytest.raises(DemonstrationError, match="episode 1 has 6 rows; 7 in order"):
        list(LeRobotDataset(tmp_path).demonstrations())


def test_a_film_that_is_too_short_is_an_error(tmp_path, episodes):
    write_v2(tmp_path, episodes, video=True)
    films = sorted(tmp_path.glob("videos/**/episode_000001.mp4"))
    films[0].replace(films[0].with_name("episode_000000.mp4"))
    with pytest.raises(DemonstrationError, match=r"episode_000000.mp4 has no frame at 0.6"):
        next(LeRobotDataset(tmp_path).demonstrations())


@pytest.mark.parametrize("module", ["pyarrow.parquet", "PIL.Image", "av"])
def test_a_missing_reader_names_the_extra(tmp_path, episodes, monkeypatch, module):
    write_v2(tmp_path, episodes, video=module == "av")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as error:
        next(LeRobotDataset(tmp_path).demonstrations())
    assert error.value.fix.endswith("[lerobot]'")
