import pytest
import yaml

from joyrlinf_core.config import presets
from joyrlinf_core.config.dump import dump_config, to_yaml
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.config.source_map import plain
from joyrlinf_core.config.yaml_tree import read_tree
from tests.doubles.toy import TOY_YAML


def reload(config, tmp_path):
    path = tmp_path / "dump.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    loaded = load_config(path)
    assert loaded.findings == ()
    return loaded.config


@pytest.mark.parametrize("sets", [[], ["env.eval=null", "sft=null"], ["runner.max_seconds=1e-7"]])
def test_round_trip(tmp_path, sets):
    path = tmp_path / "my.yaml"
    path.write_text(TOY_YAML)
    config = load_config(path, sets).config
    assert reload(config, tmp_path) == config


@pytest.mark.parametrize("name", presets.names())
def test_presets_round_trip(tmp_path, name):
    config = load_config(name).config
    assert reload(config, tmp_path) == config


@pytest.mark.parametrize(
    "text",
    ["1e-5", "010", "yes", "null", "12:30", "", "a: b", "# x", "ü", "x\ny", " a ", "1_0", "<<"],
)
def test_text_stays_text_in_both_yaml_versions(text):
    dumped = to_yaml({"key": text})
    assert plain(read_tree(dumped, "f", [])) == {"key": text}
    assert yaml.safe_load(dumped) == {"key": text}
