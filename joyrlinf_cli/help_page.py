"""What Typer's help pages show beyond what a reader needs, taken out."""

from __future__ import annotations

from typing import Any


def simplify(command: Any) -> Any:
    """Change the help pages of a command and of those below it, and return it.

    Texts are wrapped for the source; the terminal's width wraps their paragraphs anew. Flags take
    no value, so their type is not shown; the usage line shows arguments as RUN, [CONFIG] or
    [CONFIG]..., as manual pages do.

    Args:
        command: What `typer.main.get_command` returned; its classes differ between versions.
    """
    _unwrap(command)
    for parameter in command.params:
        if getattr(parameter, "is_flag", False):
            _show_no_type(parameter)
        elif parameter.param_type_name == "argument":
            _show_in_usage(parameter)
    _simplify_help_option(command)
    for below in getattr(command, "commands", {}).values():
        simplify(below)
    return command


def _unwrap(command: Any) -> None:
    """Make one line of each paragraph of the description and of what stands at the end."""
    for name in ("help", "epilog"):
        paragraphs = (getattr(command, name) or "").split("\n\n")
        setattr(command, name, "\n\n".join(" ".join(one.split()) for one in paragraphs))


def _show_no_type(flag: Any) -> None:
    flag.metavar = ""


def _show_in_usage(argument: Any) -> None:
    name = argument.metavar or argument.name.upper()
    shown = name if argument.required else f"[{name}]"
    pieces = [shown + ("..." if argument.nargs != 1 else "")]
    argument.get_usage_pieces = lambda ctx: pieces


def _simplify_help_option(command: Any) -> None:
    """Change the option that the command makes for itself when it is asked for its help."""
    make = command.get_help_option

    def get_help_option(ctx: Any) -> Any:
        option = make(ctx)
        if option is not None:
            _show_no_type(option)
        return option

    command.get_help_option = get_help_option
