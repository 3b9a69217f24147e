import pytest
import yaml

from joyrlinf_core.config.schema import Config
from tests.doubles.toy import TOY_YAML


@pytest.fixture
def make_config():
    """Returns a function that makes the toy config with dotted overrides."""

    def make(overrides=None):
        data = yaml.safe_load(TOY_YAML)
        # Inheritance is the loader's work; here the block is written out.
        data["env"]["eval"] = {**data["env"]["train"], **data["env"]["eval"]}
        for path, value in (overrides or {}).items():
            here = data
            *parents, last = path.split(".")
            for name in parents:
                here = here.setdefault(name, {})
            here[last] = value
        return Config.model_validate(data)

    return make
