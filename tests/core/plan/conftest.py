import pytest
import yaml

from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.schema import Config
from tests.doubles.toy import TOY_YAML


def toy_with(overrides=None):
    """The toy config as plain data with dotted overrides; an upper key comes before a lower one."""
    data = yaml.safe_load(TOY_YAML)
    for path, value in (overrides or {}).items():
        here = data
        *parents, last = path.split(".")
        for name in parents:
            here = here.setdefault(name, {})
        here[last] = dict(value) if isinstance(value, dict) else value
    return data


@pytest.fixture
def make_config():
    """Returns a function that makes the toy config with dotted overrides."""

    def make(overrides=None):
        data = toy_with(overrides)
        # Inheritance is the loader's work; here the block is written out.
        train, evaluation = data["env"]["train"], data["env"]["eval"]
        if evaluation is not None and evaluation.get("type", train["type"]) == train["type"]:
            data["env"]["eval"] = {**train, **evaluation}
        return Config.model_validate(data)

    return make


@pytest.fixture
def load_toy(tmp_path):
    """Returns a function that loads a file that extends the toy config by dotted overrides.

    The overrides are what the user wrote; `sets` are `--set` arguments.
    """
    (tmp_path / "toy.yaml").write_text(TOY_YAML)

    def load(overrides=None, sets=()):
        own = {}
        for path, value in (overrides or {}).items():
            here = own
            *parents, last = path.split(".")
            for name in parents:
                here = here.setdefault(name, {})
            here[last] = dict(value) if isinstance(value, dict) else value
        path = tmp_path / "my.yaml"
        path.write_text(yaml.safe_dump({"extends": "toy.yaml", **own}))
        return load_config(path, sets)

    return load
