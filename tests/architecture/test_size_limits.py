"""Files stay readable in one sitting. Lists of exceptions may only shrink."""

from tests.architecture.source_tree import all_files, functions, name_of, product_files

SOFT_FILE, HARD_FILE = 400, 600
SOFT_FUNCTION, HARD_FUNCTION = 60, 100

LONG_FILES: dict[str, int] = {}
"""Product files above the soft limit -> lines. Lower a number, or remove it; never add or raise."""

LONG_FUNCTIONS: dict[str, int] = {}
"""Product functions above the soft limit -> lines. Same rule."""


def lines(path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def check_ratchet(found: dict[str, int], listed: dict[str, int]) -> None:
    grown = {name: size for name, size in found.items() if size > listed.get(name, 0)}
    assert not grown, f"above the soft limit: {grown}; split it"
    shrunk = {name: size for name, size in listed.items() if found.get(name, 0) < size}
    assert not shrunk, f"shorter than listed, lower or remove: {shrunk} -> {found}"


def test_files_stay_under_the_hard_limit():
    too_long = {name_of(p): lines(p) for p in all_files() if lines(p) > HARD_FILE}
    assert not too_long


def test_functions_stay_under_the_hard_limit():
    too_long = {n: size for p in all_files() for n, size in functions(p) if size > HARD_FUNCTION}
    assert not too_long


def test_no_product_file_grows_past_the_soft_limit():
    found = {name_of(p): lines(p) for p in product_files() if lines(p) > SOFT_FILE}
    check_ratchet(found, LONG_FILES)


def test_no_product_function_grows_past_the_soft_limit():
    sizes = [pair for path in product_files() for pair in functions(path)]
    check_ratchet({name: size for name, size in sizes if size > SOFT_FUNCTION}, LONG_FUNCTIONS)
