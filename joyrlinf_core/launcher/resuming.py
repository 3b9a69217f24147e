"""Whether a run can go on under another config, and when that config becomes the run's own."""

from __future__ import annotations

from joyrlinf_core.config.schema import Config
from joyrlinf_core.errors import RunFailedError, UsageError
from joyrlinf_core.launcher import run_directory
from joyrlinf_core.launcher.differences import differences
from joyrlinf_core.launcher.supervisor import Listener
from joyrlinf_core.observability.events import Record, RunStarted
from joyrlinf_core.observability.run_dir import RunDir
from joyrlinf_core.plan.run_plan import RunPlan

_MODEL = "actor.model."

STORED_KEYS: dict[str, str] = {
    "model_type": "another family has other weights",
    "variant": "it sets the sizes of the weights",
    "architecture": "it sets the sizes of the weights",
    "action_dim": "it sets the sizes of the weights",
    "add_value_head": "the checkpoint holds the weights of exactly the heads that the run had",
    "noise_method": "`flow_noise` has a head of its own, the others have none",
    "lora_path": "an adapter changes which weights there are",
    "train_expert_only": "the optimizer's state is that of the weights trained so far",
}
"""Keys of `actor.model`, or sections, that decide what a checkpoint holds, and why."""


def check_fits(run_dir: RunDir, config: Config) -> None:
    """Check that the checkpoints of a run fit a changed config, as far as keys tell.

    Raises:
        UsageError: They don't; names every key in the way.
    """
    saved = run_directory.read_saved(run_dir).config
    refused = [
        (key, old, new, reason)
        for key, old, new in differences(saved, config.model_dump(mode="json"))
        if (reason := _reason(key, old, new))
    ]
    if refused:
        lines = [f"{key}: {old} -> {new} ({reason})" for key, old, new, reason in refused]
        keys = ", ".join(key for key, *_ in refused)
        raise UsageError(
            f"the checkpoints of {run_dir.root} do not fit this config: {'; '.join(lines)}",
            fix=f"leave {keys} as it was, or start a new run with `joyrl train`",
        )


class Accepting:
    """Listener that stores a resumed run's config and plan once its workers have loaded it.

    Until then the files of the run stay as they are, so a resume that fails changes nothing.

    Args:
        listener: Everything is passed on to it.
        run_dir: The run directory.
        plan: Its plan from now on.
    """

    def __init__(self, listener: Listener, run_dir: RunDir, plan: RunPlan) -> None:
        self._listener = listener
        self._run_dir = run_dir
        self._plan = plan

    def on_record(self, record: Record) -> None:
        """Store the inputs at the announcement that the run goes on."""
        if isinstance(record.event, RunStarted):
            try:
                run_directory.write_inputs(self._run_dir, self._plan)
            except OSError as error:
                raise RunFailedError(
                    f"can't write to {self._run_dir.root}: {error.strerror or error}",
                    fix="free space or restore write permission there",
                ) from error
        self._listener.on_record(record)

    def on_notice(self, text: str) -> None:
        """Pass on a message of the launcher."""
        self._listener.on_notice(text)

    def on_tick(self) -> None:
        """Pass on the passing of time."""
        self._listener.on_tick()


def _reason(key: str, old: object, new: object) -> str:
    """Return why a changed key is refused; empty if it is not."""
    name = key.removeprefix(_MODEL).partition(".")[0]
    if not key.startswith(_MODEL) or (name == "noise_method" and "flow_noise" not in (old, new)):
        return ""
    return STORED_KEYS.get(name, "")
