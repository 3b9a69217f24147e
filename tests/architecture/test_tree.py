"""Rules about the tree as a whole."""

import ast
import re
import subprocess
import tomllib

import pytest

from tests.architecture.source_tree import PACKAGES, ROOT, name_of, product_files

TEXT = {".py", ".toml", ".yaml", ".yml", ".md", ".cfg", ".json", ".txt", ""}

# Built from pieces, so that this file does not hold what it looks for.
MACHINE_PATHS = ("/" + "work/", "/tmp/" + "dev", "/root" + "/", "/home" + "/", "/opt/" + "wheels")
REGISTRY = re.compile(
    r"pypi\." + r"org|pythonhosted\." + r"org|registry\.npmjs\." + r"org|deb\.debian\." + r"org"
    r"|download\.pytorch\." + r"org"
)

COLLECTIVES = {
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "irecv",
    "isend",
    "monitored_barrier",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
}


def tracked_files():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.suffix in TEXT and path.is_file()]


def test_no_grab_bags():
    bags = {"utils", "util", "common", "helpers", "misc"}
    found = [name_of(p) for p in product_files() if bags & {*p.parent.parts, p.stem}]
    assert not found, "a helper lives beside its only user, or in the layer that its name says"


def test_types_are_shipped():
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file()
        assert (ROOT / package / "__init__.py").is_file()


def test_every_module_says_what_lives_in_it():
    silent = [
        name_of(path)
        for path in product_files()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_presets_are_in_the_wheel():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["presets"] == "joyrlinf_core/_presets"
    assert list((ROOT / "presets").glob("**/*.yaml"))


def test_nothing_names_a_machine_or_a_registry():
    found = []
    for path in tracked_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if any(text in line for text in MACHINE_PATHS) or REGISTRY.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()}")
    assert not found


def test_source_is_ascii():
    found = [name_of(path) for path in product_files() if not path.read_bytes().isascii()]
    assert not found


def test_only_comm_calls_collectives():
    found = [
        f"{name_of(path)}:{line}"
        for path in product_files()
        if "comm" not in path.relative_to(ROOT).parts
        for line in _collective_calls(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "collectives belong into joyrlinf_core/comm"


def _collective_calls(tree: ast.Module) -> list[int]:
    """Return the lines that call a collective of `torch.distributed`, or import one by its name."""
    modules = _names_of_distributed(tree)
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner, name = ast.unparse(node.func.value), node.func.attr
            lines += [node.lineno] if owner in modules and name in COLLECTIVES else []
        if isinstance(node, ast.ImportFrom) and node.module == "torch.distributed":
            lines += [node.lineno for alias in node.names if alias.name in COLLECTIVES]
    return lines


@pytest.mark.parametrize(
    "code",
    [
        "import torch.distributed as dist\ndist.all_reduce(x)",
        "import torch.distributed\ntorch.distributed.barrier()",
        "from torch import distributed\ndistributed.send(x, 1)",
        "from torch.distributed import all_gather",
    ],
)
def test_collective_calls_are_seen(code):
    assert _collective_calls(ast.parse(code))


def test_other_calls_of_the_same_name_are_fine():
    assert not _collective_calls(ast.parse("env.send(actions)\nimport torch.distributed.fsdp"))


def _names_of_distributed(tree: ast.Module) -> set[str]:
    """Return the expressions that mean `torch.distributed` in a module."""
    names = {"torch.distributed"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname for a in node.names if a.name == "torch.distributed" and a.asname}
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            names |= {a.asname or a.name for a in node.names if a.name == "distributed"}
    return names
