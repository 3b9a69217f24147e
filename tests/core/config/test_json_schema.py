import pytest

from joyrlinf_core.config import presets
from joyrlinf_core.config.json_schema import json_schema
from joyrlinf_core.config.source_map import plain
from joyrlinf_core.config.yaml_tree import read_tree
from tests.doubles.toy import TOY_YAML

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")


@pytest.fixture(scope="module")
def problems():
    """Returns a function that returns the paths of what the schema refuses in a YAML text."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)

    def of(text):
        data = plain(read_tree(text, "f.yaml", []))
        return [".".join(map(str, error.absolute_path)) for error in validator.iter_errors(data)]

    return of


@pytest.mark.parametrize("name", presets.names())
def test_it_accepts_every_preset(problems, name):
    assert problems(presets.find(name).read_text()) == []


def test_it_accepts_classes_of_other_packages(problems):
    assert problems(TOY_YAML) == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("runner: {sede: 1}", "runner"),
        ("sede: 1", ""),
        ("runner: {seed: -1}", "runner.seed"),
        ("runner: {eval_at_end: yes}", "runner.eval_at_end"),
        ("algorithm: {pipeline_mode: snyc}", "algorithm.pipeline_mode"),
        ("env: {train: {type: metawrld}}", "env.train"),
        ("env: {train: {type: metaworld, obj_set: test}}", "env.train"),
        ("actor: {model: {model_type: openpi, variant: pi06}}", "actor.model"),
        ("cluster: {component_placement: {env: [0]}}", "cluster.component_placement.env"),
        ("extends: [a]", "extends"),
        ("- a", ""),
    ],
)
def test_it_refuses(problems, text, path):
    text = text if text[0] in "-e" else f"extends: quickstart\n{text}"
    if text.startswith("env:"):
        text = f"extends: quickstart\n{text}"
    assert problems(text) == [path]


def test_only_a_file_without_a_base_must_be_whole(problems):
    assert problems("extends: quickstart\nenv: {train: {image_size: 32}}") == []
    assert problems("runner: {seed: 1}") == ["", ""]
    assert problems("env: {train: {type: metaworld, total_num_envs: 8}}\nactor: {}") == ["actor"]


def test_every_key_is_described():
    def visit(schema, path):
        for name, below in schema.get("properties", {}).items():
            assert below.get("description") or path.endswith("another package"), f"{path}.{name}"
            for option in below.get("anyOf", [below]):
                visit(option, f"{path}.{name} {option.get('title', '')}".strip())

    visit(json_schema(), "")
