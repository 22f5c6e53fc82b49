"""``lockstitch completion``: scripts that let a shell complete commands, options and sessions."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from lockstitch.cli import COMMANDS, command, terminal
from lockstitch.cli.parser import COMMON, Command, Operand
from lockstitch.cli.terminal import CLEAN
from lockstitch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lockstitch.cli.parser import Option

_SESSIONS = "sessions"
_OFFER = f"lockstitch completion {_SESSIONS} 2>/dev/null"
# How many of the newest sessions to offer.
_OFFERED = 50
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_PLAIN = re.compile(r"\w[\w.-]*", re.ASCII)
_HOW = """Put one of these where your shell reads it at every start:
  bash  echo 'eval "$(lockstitch completion bash)"' >> ~/.bashrc
  zsh   echo 'eval "$(lockstitch completion zsh)"' >> ~/.zshrc    (behind compinit)
  fish  lockstitch completion fish > ~/.config/fish/completions/lockstitch.fish
"""


def run(*, shell: str | None) -> int:
    """Print the script for a shell, or how to use it, and return the exit status."""
    if shell is None:
        terminal.emit(_HOW.encode())
    elif shell == _SESSIONS:
        terminal.emit("".join(f"{name}\n" for name in ids()).encode())
    elif shell in SCRIPTS:
        commands = [command(name) for name in COMMANDS]
        terminal.emit(SCRIPTS[shell](commands).encode())
    else:
        known = ", ".join(SCRIPTS)
        raise UsageError(f"there is no completion for {shell}: choose one of {known}.")
    return CLEAN


def ids() -> list[str]:
    """Return the ids of the newest sessions in files of their own, taken from the files' names.

    A shell evaluates what it is offered, so a name with special characters is left out.
    """
    from lockstitch.sources.targets import session_paths

    aged: dict[str, float] = {}
    for path in session_paths():
        name, end = os.path.splitext(os.path.basename(path))  # noqa: PTH119, PTH122 - start-up time
        if end in (".jsonl", ".json") and _PLAIN.fullmatch(name):
            uuid = _ID.search(name)
            changed = 0.0
            with suppress(OSError):
                changed = os.stat(path).st_mtime  # noqa: PTH116 - start-up time
            aged[uuid[0] if uuid else name] = changed
    return sorted(aged, key=aged.__getitem__, reverse=True)[:_OFFERED]


def _values(option: Option) -> tuple[str, ...]:
    return option.choices or option.known


_BASH = """\
_lockstitch_files() {
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur") $(compgen -W "$1" -- "$cur"))
}
_lockstitch() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local command= word before=
    [ "$cur" = = ] && cur=
    [ "$prev" = = ] && prev=${COMP_WORDS[COMP_CWORD-2]}
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$before/$word" in
            --color/* | =/* | */-* | */=) before=$word ;;
            *) command=$word; break ;;
        esac
    done
    COMPREPLY=()
"""


def bash(commands: Sequence[Command]) -> str:
    """Return the script for bash; a value may follow its flag directly or after ``=``."""
    names = " ".join([*(one.name for one in commands), "help"])
    shared = " ".join(flag for option in COMMON for flag in option.flags)
    values = [line for option in COMMON for line in _bash_value("*", option)]
    words = [f"/*) {_bash_words(f'{names} {shared}')} ;;", f"help/*) {_bash_words(names)} ;;"]
    for one in commands:
        values += [line for option in one.options for line in _bash_value(one.name, option)]
        flags = " ".join([*(flag for option in one.options for flag in option.flags), shared])
        words.append(f"{one.name}/-*) {_bash_words(flags)} ;;")
        is_words = one.operand.known or not one.operand.is_target
        offered = _bash_words(" ".join(one.operand.known))
        does = offered if is_words else f'_lockstitch_files "$({_OFFER})"'
        words.append(f"{one.name}/*) {does} ;;")
    cases = [
        *('    case "$command/$prev" in', *(f"        {line}" for line in values), "    esac"),
        *('    case "$command/$cur" in', *(f"        {line}" for line in words), "    esac"),
    ]
    return _BASH + "\n".join([*cases, "}", "complete -F _lockstitch lockstitch", ""])


def _bash_value(name: str, option: Option) -> Iterator[str]:
    if not option.metavar or option.implied:
        return
    pattern = " | ".join(f"{name}/{flag}" for flag in option.flags)
    does = "_lockstitch_files; " if option.takes_file else ""
    does = f"{_bash_words(' '.join(_values(option)))}; " if _values(option) else does
    yield f"{pattern}) {does}return ;;"


def _bash_words(words: str) -> str:
    return f'COMPREPLY=($(compgen -W "{words}" -- "$cur"))'


def zsh(commands: Sequence[Command]) -> str:
    """Return the script for zsh, to be evaluated or saved as ``_lockstitch`` on its path."""
    described = [_quote(f"{one.name}:{one.summary}") for one in commands]
    lines = [
        "#compdef lockstitch",
        "_lockstitch_targets() {",
        "    local -a ids",
        f'    ids=(${{(f)"$({_OFFER})"}})',
        "    _alternative 'files:file:_files' \"sessions:session:($ids)\"",
        "}",
        "_lockstitch() {",
        "    local context state state_descr line",
        "    typeset -A opt_args",
        "    local -a common commands",
        f"    common=({' '.join(_zsh_option(option) for option in COMMON)})",
        f"    commands=({' '.join(described)})",
        "    _arguments -C $common '1:command:->command' '*::argument:->argument'",
        "    case $state in",
        "        command) _describe command commands ;;",
        "        argument) case $words[1] in",
    ]
    for one in commands:
        options = " ".join(_zsh_option(option) for option in one.options)
        star = "*" if one.operand.many else "1"
        does = "_lockstitch_targets" if one.operand.is_target else " "
        does = f"({' '.join(one.operand.known)})" if one.operand.known else does
        operand = _quote(f"{star}:{one.operand.metavar}:{does}")
        lines.append(f"            {one.name}) _arguments $common {options} {operand} ;;")
    lines += [
        "            help) _describe command commands ;;",
        "        esac ;;",
        "    esac",
        "}",
        'if [ "$funcstack[1]" = _lockstitch ]; then _lockstitch "$@"',
        "else compdef _lockstitch lockstitch; fi",
    ]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """Return a text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_option(option: Option) -> str:
    escaped = re.sub(r"([\[\]:])", r"\\\1", option.help)
    takes = ""
    if option.metavar and not option.implied:
        action = "_files" if option.takes_file else f"({' '.join(_values(option))})"
        takes = f":{option.metavar}:{action}"
    exclusive = f"({' '.join(option.flags)})" if option.flags[1:] else ""
    ends = ["=" if takes and flag.startswith("--") else "" for flag in option.flags]
    return " ".join(
        _quote(f"{exclusive}{flag}{end}[{escaped}]{takes}")
        for flag, end in zip(option.flags, ends, strict=True)
    )


def fish(commands: Sequence[Command]) -> str:
    """Return the script for fish."""
    lines = ["complete -c lockstitch -f"]
    lines += [_fish_option("", option) for option in COMMON]
    for one in commands:
        only = "__fish_use_subcommand"
        lines.append(f"complete -c lockstitch -n {only} -a {one.name} -d {_quote(one.summary)}")
    for one in commands:
        only = f" -n '__fish_seen_subcommand_from {one.name}'"
        lines += [_fish_option(only, option) for option in one.options]
        if one.operand.known:
            lines.append(f"complete -c lockstitch{only} -a {_quote(' '.join(one.operand.known))}")
        elif one.operand.is_target:
            lines.append(f"complete -c lockstitch{only} -F -k -a '({_OFFER})'")
    return "\n".join(lines) + "\n"


def _fish_option(only: str, option: Option) -> str:
    flags = " ".join(
        f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
    )
    takes = ""
    if option.metavar and not option.implied:
        takes = " -r -F" if option.takes_file else f" -x -a {_quote(' '.join(_values(option)))}"
    return f"complete -c lockstitch{only} {flags}{takes} -d {_quote(option.help)}"


SCRIPTS: dict[str, Callable[[Sequence[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
COMMAND = Command(
    name="completion",
    run=run,
    details=(
        "The script completes commands, options, their values, files, and the ids of the newest "
        "sessions on this machine, which `lockstitch completion sessions` prints. Without "
        "SHELL, the command says where to put the script."
    ),
    examples=(
        "lockstitch completion",
        'eval "$(lockstitch completion bash)"',
        "lockstitch completion fish > ~/.config/fish/completions/lockstitch.fish",
    ),
    operand=Operand(
        "shell", "SHELL", "bash, zsh or fish.", is_target=False, known=("bash", "zsh", "fish")
    ),
    options=(),
)
