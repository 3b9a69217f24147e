from pathlib import Path

from joyrlinf_core.launcher.digest import Digest
from joyrlinf_core.launcher.nodes.crew import Left, NodeError, Value
from joyrlinf_core.launcher.nodes.endings import Ending, agreed

HOSTS = ("a", "b", "c")


def ending(state="completed", **more):
    return Ending(state, "/runs/x", **more)


def failed(headline, *, age, silent=False, code=5, also=()):
    log = Path("/runs/x/logs/n.log")
    digest = Digest(headline, "Traceback", "fix it", log, also, code)
    return ending("failed", digest=digest, silent=silent, age=age)


def outcome(*endings, verdict="", speaker=0, at=100.0):
    values = [one if isinstance(one, Value) else Value(one.to_json(), at) for one in endings]
    return agreed(values, HOSTS[: len(values)], verdict=verdict, speaker=speaker)


def gone(node, message="its launcher is gone"):
    error = NodeError(f"node {node}, {HOSTS[node]}: {message}", fix="look there", code=5)
    return Value(None, left=Left(node, error))


def test_an_ending_comes_back_from_its_message():
    one = failed("rank 3: x", age=2.5, silent=True, also=("rank 2: y",))
    assert Ending.from_json(one.to_json()) == one


def test_all_completed_is_completed_even_if_a_stop_came_late():
    assert outcome(ending(), ending()).exit_code == 0
    assert outcome(ending(), ending(), verdict="stop").state == "completed"


def test_one_checkpoint_anywhere_is_enough_to_go_on():
    stopped = ending("stopped")
    assert outcome(stopped, ending("stopped", checkpoint="global_step_3")).exit_code == 75
    assert outcome(stopped, stopped).exit_code == 130
    assert outcome(ending("killed"), ending(), verdict="stop").exit_code == 130


def test_a_failure_after_a_stop_is_a_part_of_it():
    broken = failed("rank 0: connection reset", age=0.1)
    assert outcome(broken, ending("killed"), verdict="stop").state == "interrupted"
    assert outcome(broken, ending("killed"), verdict="failure").state == "failed"


def test_the_earliest_message_is_the_cause_on_the_clock_of_node_0():
    cause, effect = failed("rank 9: out of range", age=3.0), failed("rank 0: reset", age=1.0)
    result = outcome(effect, cause, ending("halted"), verdict="failure")
    assert result.digest.headline == "node 1, b: rank 9: out of range"
    assert result.digest.also == ("node 0, a: rank 0: reset",)
    assert (result.digest.host, result.exit_code) == ("b", 5)


def test_a_silent_death_goes_before_messages_and_losses():
    killed, effect = failed("rank 9 died", age=0.2, silent=True), failed("rank 0: reset", age=5.0)
    result = outcome(effect, killed, gone(2), verdict="failure")
    assert result.digest.headline == "node 1, b: rank 9 died"
    assert result.digest.also == ("node 2, c: its launcher is gone", "node 0, a: rank 0: reset")


def test_a_lost_node_goes_before_messages():
    result = outcome(failed("rank 0: reset", age=5.0), gone(1), verdict="failure")
    assert result.digest.headline == "node 1, b: its launcher is gone"
    assert result.digest.host == "b"


def test_a_node_that_ended_early_is_a_failure():
    result = outcome(ending("halted"), Value(None, left=Left(1, None)), verdict="failure")
    assert result.digest.headline == "node 1, b: ended early"


def test_the_way_on_is_that_of_the_node_with_the_checkpoints():
    broken = failed("rank 0: x", age=1.0)
    result = outcome(broken, ending("halted", checkpoint="global_step_4"), speaker=1)
    assert result.digest.resume == (
        "global_step_4 is whole on node 1, b; go on from it with, on every node: "
        "joyrl resume /runs/x"
    )
    assert outcome(broken, ending("halted"), speaker=1).digest.resume == ""


def test_on_one_node_the_digest_stays_as_it_is():
    result = outcome(failed("rank 0: x", age=1.0, code=4), verdict="failure")
    assert (result.digest.headline, result.digest.host) == ("rank 0: x", "")
    assert result.exit_code == 4
