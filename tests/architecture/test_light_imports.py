"""What must start in a fraction of a second imports neither torch nor a simulator.

`joyrl validate` and `joyrl --help` run where torch is not installed at all, and simulator processes
never pay for torch. Each test runs a new interpreter in which the heavy packages can't be imported.
"""

import subprocess
import sys
import textwrap

import pytest

from tests.architecture.source_tree import ROOT, module_of, product_files

FORBIDDEN = (
    "torch",
    "transformers",
    "safetensors",
    "peft",
    "sentencepiece",
    "tensorboard",
    "mujoco",
    "metaworld",
    "gymnasium",
    "OpenGL",
    "pyarrow",
    "wandb",
)

BLOCK = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {FORBIDDEN!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
"""

LIGHT = (
    "joyrlinf_cli",
    "joyrlinf_core.config",
    "joyrlinf_core.demos",
    "joyrlinf_core.errors",
    "joyrlinf_core.launcher",
    "joyrlinf_core.plan",
    "joyrlinf_core.registry",
    "joyrlinf_core.seeding",
    "joyrlinf_core.batch.demonstration",
    "joyrlinf_core.batch.observation",
    "joyrlinf_core.observability.events",
    "joyrlinf_core.observability.reader",
    "joyrlinf_core.observability.run_dir",
)


def run_blocked(code: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", BLOCK + textwrap.dedent(code), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("package", LIGHT)
def test_package_imports_without_heavy_packages(package):
    names = [module_of(path) for path in product_files()]
    modules = [name for name in names if name == package or name.startswith(f"{package}.")]
    assert modules, f"{package} is gone: mend this list"
    run_blocked(
        """
        import importlib
        for name in sys.argv[1:]:
            importlib.import_module(name)
        """,
        *(name for name in modules if not name.endswith("__main__")),
    )


@pytest.mark.parametrize("kind", ["envs", "policies", "advantages", "losses"])
def test_registered_modules_load_without_heavy_packages(kind):
    printed = run_blocked(
        """
        from joyrlinf_core import registry
        kind = sys.argv[1]
        for name in registry.names(kind):
            registry.load(kind, name)
            print(name)
        """,
        kind,
    )
    assert printed.split(), f"no {kind} found"


def test_help_and_validate_run_without_torch():
    run_blocked(
        """
        from joyrlinf_cli.main import main
        for arguments in (["--help"], ["validate", "--preset", "quickstart"]):
            sys.argv = ["joyrl", *arguments]
            try:
                code = main()
            except SystemExit as end:
                code = end.code
            if code:
                sys.exit(f"{arguments} ended with {code}")
        """
    )


def test_the_blocker_blocks():
    with pytest.raises(AssertionError, match="torch is blocked"):
        run_blocked("import torch")
