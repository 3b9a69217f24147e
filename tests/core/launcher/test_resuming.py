import pytest

from joyrlinf_core.errors import UsageError
from joyrlinf_core.launcher import resuming, run_directory
from joyrlinf_core.observability.events import Phase, Record, RunStarted


class Silent:
    def on_record(self, record):
        self.last = record


def changed(config, **model):
    actor = config.actor.model_copy(update={"model": config.actor.model.model_copy(update=model)})
    return config.model_copy(update={"actor": actor})


def test_a_key_that_changes_the_weights_is_refused_by_name(make_plan):
    plan = make_plan()
    run_dir = run_directory.create(plan)
    resuming.check_fits(run_dir, changed(plan.config, predict_micro_batch_size=3))
    with pytest.raises(
        UsageError, match=r"add_value_head: False -> True \(the checkpoint"
    ) as caught:
        resuming.check_fits(run_dir, changed(plan.config, add_value_head=True))
    assert "leave actor.model.add_value_head as it was" in caught.value.fix


def test_inputs_change_only_once_the_workers_go_on(make_plan):
    run_dir = run_directory.create(make_plan())
    before = run_dir.config.read_text(), run_dir.plan.read_text()
    plan = make_plan(config={"algorithm": {"group_size": 4}})
    listener = resuming.Accepting(Silent(), run_dir, plan)
    listener.on_record(Record(0.0, 0, Phase("load", 0)))
    assert (run_dir.config.read_text(), run_dir.plan.read_text()) == before
    listener.on_record(Record(0.0, 0, RunStarted("train", "d", 1, 3, 6)))
    assert "group_size: 4" in run_dir.config.read_text()
