import json

from joyrlinf_core.config import presets


def test_list_marks_what_runs(joyrl):
    result = joyrl("presets", "list")
    assert result.code == 0
    lines = result.out.splitlines()
    rows = [line for line in lines if line.startswith(("* ", "  "))]
    assert sorted(row[2:].split()[0] for row in rows[:-1]) == presets.names()
    marked = {row.split()[1] for row in rows[:-1] if row.startswith("*")}
    assert marked == {"quickstart", "metaworld-multitask"}
    assert "runs in this version" in lines[-1]
    heading = lines.index("maniskill, openpi pi05")
    one_gpu = next(line for line in lines[heading:] if "maniskill-pi05-1gpu" in line)
    assert one_gpu.split()[1:5] == ["sync", "1", "x", "24"]


def test_list_as_json(joyrl):
    document = json.loads(joyrl("presets", "list", "--json").out)
    rows = {row["name"]: row for row in document["presets"]}
    assert sorted(rows) == presets.names()
    assert all(row["title"] for row in rows.values())
    assert (rows["quickstart"]["runs"], rows["quickstart"]["missing"]) == (True, [])
    planned = rows["maniskill-gr00t-async"]
    assert (planned["simulator"], planned["model"], planned["mode"]) == (
        "maniskill",
        "gr00t",
        "async",
    )
    assert not planned["runs"]
    assert len(planned["missing"]) == 2


def test_show_prints_the_file(joyrl):
    result = joyrl("presets", "show", "quickstart")
    assert (result.code, result.out) == (0, presets.find("quickstart").read_text())


def test_unknown_preset(joyrl):
    for command in ("show", "copy"):
        result = joyrl("presets", command, "qickstart")
        assert (result.code, result.out) == (2, "")
        assert "did you mean quickstart?" in result.err


def test_copy_keeps_comments_and_validates(joyrl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = joyrl("presets", "copy", "quickstart")
    assert result.code == 0
    assert ".joyrl-schema.json" in result.err
    copied = tmp_path / "quickstart.yaml"
    assert copied.read_text().endswith(presets.find("quickstart").read_text())
    assert joyrl("validate", "quickstart.yaml").code == 0


def test_copy_does_not_overwrite(joyrl, tmp_path):
    target = tmp_path / "mine.yaml"
    target.write_text("x")
    result = joyrl("presets", "copy", "quickstart", target)
    assert (result.code, target.read_text()) == (2, "x")
    assert "--force" in result.err
    assert joyrl("presets", "copy", "quickstart", target, "--force").code == 0
    assert target.read_text() != "x"


def test_copy_into_nowhere(joyrl, tmp_path):
    result = joyrl("presets", "copy", "quickstart", tmp_path / "no" / "mine.yaml")
    assert result.code == 2
    assert "no folder" in result.err


def test_copy_without_permission(joyrl, tmp_path, monkeypatch):
    def refuse(self, *_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "write_text", refuse)
    result = joyrl("presets", "copy", "quickstart", tmp_path)
    assert result.code == 4
    assert "Permission denied" in result.err
