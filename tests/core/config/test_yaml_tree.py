import time

import pytest

from joyrlinf_core.config.source_map import SourceMap, plain
from joyrlinf_core.config.yaml_tree import MAX_BYTES, read_tree


def read(text):
    """Returns (plain value, findings)."""
    findings = []
    tree = read_tree(text, "a.yaml", findings)
    return (plain(tree) if tree is not None else None), findings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E6", 1e6),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+3", 3),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("0-7", "0-7"),
        ("0,1", "0,1"),
        ("yes", "yes"),
        ("on", "on"),
        ("No", "No"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("2026-01-02", "2026-01-02"),
        ("'1e-5'", "1e-5"),
        ('"null"', "null"),
        ("!!str 10", "10"),
        ("!!float 1", 1.0),
        ("e5", "e5"),
        (".", "."),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    got, findings = read(f"key: {text}")
    assert findings == []
    assert got == {"key": value}
    assert type(got["key"]) is type(value)


def test_infinity_is_read():
    got, _ = read("[.inf, -.INF]")
    assert got == [float("inf"), float("-inf")]


def test_every_value_knows_its_place():
    findings = []
    tree = read_tree("a:\n  b: [1, xy]\n  c: 2\n", "f.yaml", findings)
    places = SourceMap.of(tree)
    key = places.locate("a.c")
    assert (key.file, key.line, key.column, key.text) == ("f.yaml", 3, 3, "  c: 2")
    item = places.locate("a.b.1")
    assert (item.line, item.column, item.length) == (2, 10, 2)
    assert places.locate("a.c", value=True).column == 6
    assert places.locate("a.b.nothing.here").line == 2


def test_duplicate_key_names_both_lines():
    got, findings = read("a:\n  x: 1\n  y: 2\n  x: 3\n")
    assert got == {"a": {"x": 1, "y": 2}}
    assert [(f.code, f.paths, f.line, f.column) for f in findings] == [("JR004", ("a.x",), 4, 3)]
    assert "line 2" in findings[0].message
    assert "line 4" in findings[0].message


def test_merge_keys_work():
    got, findings = read(
        "base: &b {x: 1, y: 2}\nother: &o {x: 9, z: 3}\none:\n  <<: *b\n  y: 5\n"
        "two:\n  <<: [*b, *o]\n"
    )
    assert findings == []
    assert got["one"] == {"x": 1, "y": 5}
    assert got["two"] == {"x": 1, "y": 2, "z": 3}


def test_merge_key_with_a_scalar_is_a_finding():
    _, findings = read("a:\n  <<: 3\n")
    assert [(f.code, f.line) for f in findings] == [("JR005", 2)]


def test_aliases_are_shared_values():
    got, findings = read("a: &x [1, 2]\nb: *x\n")
    assert (got, findings) == ({"a": [1, 2], "b": [1, 2]}, [])


def test_alias_bomb_is_stopped():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    _, findings = read("\n".join(lines))
    assert [f.code for f in findings] == ["JR005"]
    assert "aliases expanded" in findings[0].message


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 {x: 1}\n"
        + "\n".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 30)),
        "a0: &a0 [x]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 2000)),
        "[" * 100_000,
        "{a: " * 3000 + "1" + "}" * 3000,
        "\n".join(" " * i + "a:" for i in range(1000)),
        "- " * 60 + "x",
        "\n".join(f"k{i}: &k{i} {i}" for i in range(40_000)),
    ],
    ids=["merge", "alias chain", "[", "{", "block", "- -", "many"],
)
def test_what_no_config_holds_is_refused_quickly(text):
    started = time.process_time()
    got, findings = read(text)
    assert time.process_time() - started < 5
    assert got is None
    assert [f.code for f in findings] == ["JR005"]
    assert "more than" in findings[0].message
    assert findings[0].line
    assert findings[0].column


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("a: 9223372036854775808", "JR005", "64 bits"),
        ("a: -9223372036854775809", "JR005", "64 bits"),
        (f"a: 0x{'f' * 9000}", "JR005", "64 bits"),
        (f"a: 0o{'7' * 9000}", "JR005", "64 bits"),
        ('a: "\\ud800"', "JR005", "surrogate"),
        ('a: "x\\0"', "JR005", "NUL"),
        ('"x\\0": 1', "JR005", "NUL"),
        ("'': 1", "JR005", "a key is empty"),
        ("!!python/name:os.system x: 1", "JR005", "tag"),
        ("a:\n  <<: {x: 1}\n  <<: {y: 1}\n", "JR004", "on line 2 and on line 3"),
        ("a: \u2028x", "JR003", "U+2028 (line separator)"),
        ("a: \x85x", "JR003", "U+0085"),
        ('a: "\\UFFFFFFFF"', "JR003", "U+10FFFF"),
        ('a: "\\U00110000"', "JR003", "U+10FFFF"),
        ("%YAML 3.0\n--- 1", "JR003", "version"),
    ],
)
def test_more_that_is_refused(text, code, told):
    _, findings = read(text)
    assert [f.code for f in findings] == [code]
    assert told in findings[0].message
    assert findings[0].column


def test_a_duplicate_of_a_refused_value_is_told_too():
    _, findings = read("a: !custom 1\na: 2\n")
    assert [f.code for f in findings] == ["JR005", "JR004"]


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_lines_are_counted_alike(end):
    _, findings = read(end.join(["a: 1", "b: 2", "a: 3", ""]))
    assert [(f.line, f.column) for f in findings] == [(3, 1)]
    findings = []
    read_tree(end.encode().join([b"a: 1", b"b: \xff"]), "a.yaml", findings)
    assert [(f.line, f.column) for f in findings] == [(2, 4)]


def test_alias_inside_itself_is_a_finding():
    _, findings = read("a: &a\n  b: *a\n")
    assert [f.code for f in findings] == ["JR005"]


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: !custom 3",
        "a: !!set {x}",
        "!!omap [a: 1]",
    ],
)
def test_tags_are_not_executed(text):
    _, findings = read(text)
    assert [f.code for f in findings] == ["JR005"]
    assert "tag" in findings[0].message


@pytest.mark.parametrize("text", ["a: !!int x", "a: !!bool maybe", f"a: {'9' * 5000}"])
def test_text_that_does_not_fit_its_tag(text):
    _, findings = read(text)
    assert [f.code for f in findings] == ["JR005"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\n\tb: 2\n", 2),
        ("a:\n\t- 1\n", 2),
        ("a: [1, 2\nb: 3\n", 1),
        ("a: 'x\n", 1),
        ("a: b: c\n", 1),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: *nothing\n", 1),
        ("a: \x01\n", 1),
        ("a: 1\n  b: 2\n", 2),
        ("@: 1\n", 1),
    ],
)
def test_broken_yaml_has_a_place(text, line):
    got, findings = read(text)
    assert got is None
    assert [(f.code, f.file, f.line) for f in findings] == [("JR003", "a.yaml", line)]
    assert findings[0].column >= 1


def test_tab_is_called_a_tab():
    _, findings = read("a:\n\tb: 2\n")
    assert "tab" in findings[0].message
    assert "spaces" in findings[0].fix


def test_not_utf_8():
    findings = []
    assert read_tree(b"a: 1\nb: \xff\n", "a.yaml", findings) is None
    assert [(f.code, f.line, f.column) for f in findings] == [("JR002", 2, 4)]


def test_byte_order_mark_is_dropped():
    findings = []
    assert plain(read_tree(b"\xef\xbb\xbfa: 1\n", "a.yaml", findings)) == {"a": 1}


def test_too_large_is_a_finding():
    findings = []
    assert read_tree(b" " * (MAX_BYTES + 1), "a.yaml", findings) is None
    assert [f.code for f in findings] == ["JR002"]


def test_deep_nesting_is_a_finding():
    _, findings = read("[" * 5000)
    assert [f.code for f in findings] == ["JR005"]


def test_key_that_is_no_text():
    _, findings = read("? [a, b]\n: 1\n")
    assert [f.code for f in findings] == ["JR005"]


@pytest.mark.parametrize(
    ("text", "place", "message", "fix"),
    [
        ('a:\n  b: "x\n  c: 1\nd: 2\n', (2, 6), "quote that opens here is not closed", "close it"),
        ("a: {b: 1,\nc:\n  d: 4\n", (1, 4), "`{` that opens here is not", "close it with `}`"),
        ("a: 1\nb: [1, 2\nc: 3\n", (2, 4), "`[` that opens here is not", "close it with `]`"),
        ("r:\n  seed:1\n  b: 4\n", (2, 3), "behind the colon of `seed:`", "write `seed: 1`"),
        ("r:\n  b: 4\n\n  seed:1\n", (4, 3), "behind the colon of `seed:`", "write `seed: 1`"),
        ("r:\n  b: 4\n  seed:1\n  c: 2\n", (3, 3), "behind the colon", "write `seed: 1`"),
    ],
)  # fmt: skip
def test_the_caret_shows_where_a_mistake_begins(text, place, message, fix):
    _, (finding,) = read(text)
    assert finding.code == "JR003"
    assert (finding.line, finding.column) == place
    assert message in finding.message
    assert finding.fix.startswith(fix)


def test_tags_of_the_types_that_a_config_has_are_read():
    got, findings = read('a: !!int "3"\nb: !!map {c: !!str 1}\n')
    assert (got, findings) == ({"a": 3, "b": {"c": "1"}}, [])
