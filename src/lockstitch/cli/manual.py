"""Help, usage errors and every spelling beyond the everyday: typer, built from the declarations."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

import lockstitch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lockstitch.cli.arguments import Command, Option

    Call = tuple[Command, dict[str, Any]]

ABOUT = """Checks and heals the message lists of LLM agents.

Exit status: 0 clean or mended, 1 findings left, 2 usage, unreadable input or own failure."""


def run(words: Sequence[str], commands: Sequence[Command]) -> int:
    """Let typer parse the words, then run the command it found and return its exit status.

    Commands run only after typer has finished, so that its own handling of interrupts and
    errors, with statuses of its own, never sees them.
    """
    found = parse(words, commands)
    if isinstance(found, int):
        return found
    chosen, values = found
    return chosen.start(values)


def parse(words: Sequence[str], commands: Sequence[Command]) -> Call | int:
    """The command and its keyword arguments, or an exit status when typer answered itself."""
    calls: list[Call] = []
    app = typer.Typer(
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=ABOUT)(_version)
    for command in commands:
        app.command(
            command.name,
            help=f"{command.summary}\n\n{command.details}",
            short_help=command.summary,
            epilog="\b\nExamples:\n" + "\n".join(f"  {example}" for example in command.examples),
        )(_recorder(command, calls))
    try:
        app(args=list(_spelled_out(words, commands)), prog_name="lockstitch")
    except SystemExit as stop:
        if stop.code:
            return 2
    return calls[0] if calls else 0


def _spelled_out(words: Sequence[str], commands: Sequence[Command]) -> Iterator[str]:
    """Give the words with the value of every option that may stand without one."""
    implied = {
        flag: option.implied
        for command in commands
        for option in command.options
        for flag in option.flags
        if option.implied
    }
    is_over = False
    for word in words:
        is_over = is_over or word == "--"
        yield word if is_over or word not in implied else f"{word}={implied[word]}"


def _recorder(command: Command, calls: list[Call]) -> Callable[..., None]:
    """A function with the signature that typer expects, which notes what it was called with."""

    def record(**values: Any) -> None:
        given = {name: value for name, value in values.items() if value is not None}
        calls.append((command, command.defaults() | given))

    kind: Any = list[str] | None if command.operand.many else str | None
    operand = typer.Argument(
        metavar=command.operand.metavar, help=command.operand.help, show_default=False
    )
    types = {command.operand.name: Annotated[kind, operand]}
    types |= {option.name: _annotation(option) for option in command.options}
    # Not every typer takes an empty list for a default, so a list starts as None like the rest.
    defaults = {name: value or None for name, value in command.defaults().items()}
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = [
        inspect.Parameter(name, keyword, annotation=kind, default=defaults[name])
        for name, kind in types.items()
    ]
    record.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    record.__annotations__ = types
    return record


def _annotation(option: Option) -> Any:
    if not option.metavar:
        return Annotated[bool, typer.Option(*option.flags, help=option.help)]
    described = typer.Option(
        *option.flags,
        metavar=f"[={option.metavar}]" if option.implied else option.metavar,
        help=option.help,
        callback=_choice(option) if option.choices else None,
        show_default=False,
    )
    return Annotated[str | None, described]


def _choice(option: Option) -> Callable[[str | None], str | None]:
    def allowed(value: str | None) -> str | None:
        if value is not None and value not in option.choices:
            raise typer.BadParameter(f"{value!r} is not one of {', '.join(option.choices)}")
        return value

    return allowed


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lockstitch {lockstitch.__version__}")
        raise typer.Exit


def _version(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass
