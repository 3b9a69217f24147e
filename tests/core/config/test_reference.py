from pathlib import Path

from joyrlinf_core import registry
from joyrlinf_core.config.keys import all_keys
from joyrlinf_core.config.reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "config.md"


def test_the_page_is_up_to_date():
    """Mend it with `make docs`."""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_the_page_has_every_section_and_class():
    page = reference()
    for key in all_keys({}):
        assert f"`{key}`" in page or f"| `{key.rpartition('.')[2]}` |" in page
    for kind, key in (("envs", "type"), ("policies", "model_type")):
        for name in registry.names(kind):
            assert f" with `{key}: {name}`" in page
