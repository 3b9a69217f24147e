import re
import subprocess
import sys

import pytest

from joyrlinf_core.plan.rules import pages
from tests.architecture.source_tree import ROOT, product_files

CODE = re.compile(r"\bJR\d{3}\b")


def test_the_document_is_fresh():
    there = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert there == pages.document(), "run `make docs`"


def test_the_command_prints_the_document():
    printed = subprocess.run(
        [sys.executable, "-m", "joyrlinf_core.plan.rules"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == pages.document()


@pytest.mark.parametrize("code", pages.codes())
def test_every_page_says_what_must_hold_and_why(code):
    page = pages.page(code)
    assert page.title
    assert not page.title.endswith(".")
    assert len(page.title) < 100
    assert page.body
    if page.reads:
        assert "Example: " in page.body
    assert page.markdown.isascii()


def test_every_code_of_the_product_has_a_page():
    named = {code for path in product_files() for code in CODE.findall(path.read_text("utf-8"))}
    assert named == set(pages.codes())


def test_near_codes():
    assert all(code.startswith("JR10") for code in pages.nearest("jr100"))
    assert "JR103" in pages.nearest("JR13")
    assert pages.nearest("nonsense") == []
    assert pages.page("JR999") is None
