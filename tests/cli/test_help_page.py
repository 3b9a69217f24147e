import typer

from joyrlinf_cli.app import build
from joyrlinf_cli.help_page import simplify


def commands(command, name="joyrl"):
    yield name, command
    for below, one in getattr(command, "commands", {}).items():
        yield from commands(one, f"{name} {below}")


def test_paragraphs_are_wrapped_by_the_terminal_alone():
    texts = [
        (name, one.help, one.epilog)
        for name, one in commands(simplify(typer.main.get_command(build())))
    ]
    assert len(texts) > 1
    for name, *parts in texts:
        for part in parts:
            assert "\n" not in part.replace("\n\n", ""), name
