import pytest

from joyrlinf_cli.render.table import shown_bytes, table


def text(lines):
    return ["".join(part for part, _ in line) for line in lines]


def test_columns_line_up():
    lines = table(["name", "size"], [["a", "1000"], ["longer", "1"]], right=["size"])
    assert text(lines) == ["  name    size", "  a       1000", "  longer     1"]


def test_without_headers():
    assert text(table(["", ""], [["a", "b"], ["ccc", ""]])) == ["  a    b", "  ccc"]


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "0.999 KiB"),
        (1536, "1.5 KiB"),
        (1000 * 1024, "0.977 MiB"),
        (5 * 2**30, "5 GiB"),
        (2.5 * 2**40, "2.5 TiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_shown_bytes(nbytes, shown):
    assert shown_bytes(nbytes) == shown
