"""What README.md and docs/ show is true.

Every fenced block is checked by its language; an unknown language fails.

bash: one command a line. The commands of a page run in order in one empty directory:
  - `joyrl` commands that only read or write small files (`--help`, `--version`, `validate`,
    `presets`, `config`, and whatever has `--dry-run`) run for real and must exit with 0;
  - other `joyrl` commands start jobs or need their results: they are parsed by the real command
    line, so commands, options and choices must exist, and their presets and `--set` must be valid;
  - `make TARGET` must be a target (`make --dry-run`);
  - `pip install '...[extra]'` must name extras of pyproject.toml;
  - `git clone`, `cd` and `tensorboard` are not checked.
yaml: a config that validates; one without `extends` is laid over the preset `quickstart`.
python: stands word for word in the file that a `<!-- from: path -->` comment above names.
text: pictures of output, not checked.
"""

import itertools
import subprocess
import sys
import tomllib

import pytest
import typer

from joyrlinf_cli.app import build
from joyrlinf_core.config.loader import load_config
from joyrlinf_core.plan.build import check_loaded
from tests.docs.markdown import PAGES, ROOT, blocks, commands, local_links

QUICK = {"--help", "--version", "validate", "presets", "config"}
UNCHECKED = {"git", "cd", "tensorboard", ".", "python3"}


def shell_blocks(page):
    return [block for block in blocks(page) if block.language == "bash"]


@pytest.fixture
def parse_only(monkeypatch):
    """Return a function that parses a command line and runs nothing."""
    monkeypatch.setattr(typer.core.TyperCommand, "invoke", lambda self, ctx: None)

    def parse(arguments):
        build()(arguments, standalone_mode=False)

    return parse


def run_joyrl(arguments, directory):
    return subprocess.run(
        [sys.executable, "-m", "joyrlinf_cli.main", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_job(arguments, where):
    """Check the presets and the `--set` of a command that starts a job."""
    options = list(itertools.pairwise(arguments))
    sets = [value for option, value in options if option == "--set"]
    for option, name in options:
        if option == "--preset":
            loaded = load_config(name, sets)
            errors = [f for f in check_loaded(loaded) if f.severity == "error"]
            assert not errors, f"{where}: {errors}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page, tmp_path, parse_only):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for block in shell_blocks(page):
        for words in commands(block):
            where, (program, *arguments) = f"{block}: {' '.join(words)}", words
            if program == "joyrl" and (QUICK & set(arguments[:1]) or "--dry-run" in arguments):
                result = run_joyrl(arguments, tmp_path)
                assert result.returncode == 0, f"{where}\n{result.stdout}{result.stderr}"
            elif program == "joyrl":
                parse_only(arguments)
                check_job(arguments, where)
            elif program == "make":
                subprocess.run(["make", "--dry-run", *arguments], cwd=ROOT, check=True)
            elif program == "pip":
                named = [w.partition("[")[2].partition("]")[0] for w in arguments if "[" in w]
                assert set(",".join(named).split(",")) <= {*extras, ""}, where
            elif program == "python":
                module = arguments[0] == "-m"
                script = f"{arguments[1].replace('.', '/')}.py" if module else arguments[0]
                assert (ROOT / script).is_file(), where
            else:
                assert program in UNCHECKED, f"{where}: no rule checks this"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_other_blocks(page, tmp_path):
    for block in blocks(page):
        if block.language == "yaml":
            head = "" if "extends:" in block.text else "extends: quickstart\n"
            config = tmp_path / "block.yaml"
            config.write_text(head + block.text)
            errors = [f for f in check_loaded(load_config(config)) if f.severity == "error"]
            assert not errors, f"{block}: {errors}"
        elif block.language == "python":
            assert block.source, f"{block}: say which file it is from"
            assert block.text in (ROOT / block.source).read_text(), f"{block}: {block.source}"
        else:
            assert block.language in ("bash", "text"), f"{block}: unknown language"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    missing = [link for link in local_links(page) if not (page.parent / link).exists()]
    assert not missing


def test_parsing_finds_what_does_not_exist(parse_only):
    parse_only(["validate", "my.yaml"])
    with pytest.raises(Exception, match="No such option"):
        parse_only(["validate", "--no-such-option"])
    with pytest.raises(Exception, match="No such command"):
        parse_only(["no-such-command"])


def test_readme_names_every_page():
    links = set(local_links(ROOT / "README.md"))
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= links
