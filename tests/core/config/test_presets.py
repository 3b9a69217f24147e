import pytest

from joyrlinf_core.config import presets
from joyrlinf_core.errors import ConfigError


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A preset folder of this test."""
    (tmp_path / "libero").mkdir()
    (tmp_path / "one.yaml").write_text("meta: {title: One, aliases: [old-one]}\n")
    (tmp_path / "libero" / "two.yaml").write_text("runner: {}\n")
    monkeypatch.setattr(presets, "folder", lambda: tmp_path)
    return tmp_path


def test_names_are_paths_without_suffix(shelf):
    assert presets.names() == ["libero/two", "one"]


def test_find_by_name_and_alias(shelf):
    assert presets.find("libero/two") == shelf / "libero" / "two.yaml"
    assert presets.find("old-one") == shelf / "one.yaml"
    assert presets.find("old-on") is None
    assert presets.find("../one") is None


def test_nearest(shelf):
    assert presets.nearest("old-on")[0] == "old-one"
    assert presets.nearest("zzzz") == []


def test_listing_reads_descriptions(shelf):
    assert [preset.meta.title for preset in presets.listing()] == ["", "One"]


@pytest.mark.parametrize("text", ["meta: {titel: x}\n", "meta: [\n", "meta: 3\n"])
def test_broken_description(shelf, text):
    (shelf / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError):
        presets.listing()


def test_an_installed_wheel_has_its_own_folder(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "joyrlinf_core"
    (package / "_presets").mkdir(parents=True)
    (package / "__init__.py").touch()
    # A folder `presets` beside the package belongs to somebody else.
    (package.parent / "presets").mkdir()
    monkeypatch.setattr(presets.joyrlinf_core, "__file__", str(package / "__init__.py"))
    assert presets.folder() == package / "_presets"


def test_a_checkout_uses_the_top_level_folder():
    assert presets.folder().name == "presets"
    assert "quickstart" in presets.names()
