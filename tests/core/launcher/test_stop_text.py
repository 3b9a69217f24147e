import pytest

from joyrlinf_core.launcher.stop_text import JobProgress
from joyrlinf_core.observability.events import CheckpointSaved, Phase, Record, RunStarted

TRAIN = RunStarted("train", "d", 2, 0, 6)
RESUMED = RunStarted("train", "d", 2, 4, 6)
SFT = RunStarted("sft", "d", 2, 0, 10)


@pytest.mark.parametrize(
    ("job", "events", "text"),
    [
        ("train", [Phase("load", 0)], "stopping; nothing was started yet"),
        ("train", [TRAIN, Phase("eval", 0)], "stopping; no step was made, nothing to save"),
        ("train", [TRAIN, Phase("rollout", 0)], "finishing the step, then saving"),
        ("train", [TRAIN, Phase("eval", 2)], "stopping the evaluation, then saving"),
        ("train", [TRAIN, Phase("wait_for_batch", 2)], "finishing the step, then saving"),
        ("train", [Phase("simulators", 0), RESUMED], "stopping; step 4 is saved already"),
        ("train", [TRAIN, CheckpointSaved(6, "p", 1.0), Phase("eval", 6)],
         "stopping; step 6 is saved already"),
        ("sft", [SFT, Phase("demos", 0)], "stopping; nothing to save"),
        ("sft", [SFT, Phase("eval", 10)], "stopping the evaluation; the policy is kept"),
        ("eval", [RunStarted("eval", "d", 1, 3, 9), Phase("eval", 3)], "stopping; nothing to save"),
    ],
)  # fmt: skip
def test_text_is_what_the_workers_will_do(job, events, text):
    progress = JobProgress(job)
    for event in events:
        progress.add(Record(0.0, 0, event))
    assert progress.stop_text() == text
