from joyrlinf_cli.render.dry_run import unrunnable_lines
from joyrlinf_core.errors import Finding


def test_why_it_does_not_run_fits_the_terminal():
    reason = "env type 'maniskill' can be planned in this version, but not run"
    blockers = [Finding(code, "info", (), reason) for code in ("JR403", "JR701")]
    lines = ["".join(text for text, _ in line) for line in unrunnable_lines(blockers, 60)]
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == (
        f"does not run in this version: JR403 {reason}; JR701 {reason}"
    )
    assert unrunnable_lines([], 60) == []
