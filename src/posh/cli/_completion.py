"""``posh completion``: a script that lets a shell complete the commands and options, made from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from posh.cli._command import Parser, Report, declare

__all__ = ["add"]


class Described(NamedTuple):
    """A command: its words after ``posh``, what may follow, and its options with their values and help."""

    words: tuple[str, ...]
    summary: str
    following: list[str]
    options: list[argparse.Action]


def add(parser: Parser) -> None:
    """Declare the arguments."""
    declare(parser, 'eval "$(posh completion bash)"', _completion)
    parser.add_argument("shell", choices=_SHELLS, help="print the script for this shell")


def _completion(args: argparse.Namespace) -> Report:
    from posh.cli import full_parser

    script = _SHELLS[args.shell](list(_described(full_parser())))
    return Report({"shell": args.shell, "script": script}, script)


def _described(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = (), summary: str = ""
) -> Iterator[Described]:
    """Yield a command and all below it."""
    below: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    following: list[str] = []
    options: list[argparse.Action] = []
    for action in parser._actions:  # argparse has no public way to look at them
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
        elif action.option_strings:
            options.append(action)
        elif action.choices:
            following += map(str, action.choices)
    yield Described(words, summary, [*below, *following], options)
    for name, own in below.items():
        yield from _described(own, (*words, name), summaries.get(name, ""))


# bash and zsh --------------------------------------------------------------------------------------------

_BASH = """\
# Completion of posh for bash. Put this line into ~/.bashrc: eval "$(posh completion bash)"
_posh() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {commands}) command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$command $before" in
{values}
  esac
  case "$command" in
{words}
  esac
}}
complete -o default -F _posh posh
"""
_ZSH = """\
# Completion of posh for zsh. Put this line into ~/.zshrc: eval "$(posh completion zsh)"
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
"""


def _bash(commands: list[Described]) -> str:
    below = [_quoted("".join(f" {word}" for word in each.words)) for each in commands if each.words]
    values, words = [], []
    for each in commands:
        name = "".join(f" {word}" for word in each.words)
        for action in each.options:
            if action.nargs == 0:
                continue
            reply = (
                f'COMPREPLY=($(compgen -W "{" ".join(map(str, action.choices))}" -- "$word"))'
                if action.choices
                else ""
            )
            patterns = "|".join(_quoted(f"{name} {option}") for option in action.option_strings)
            values.append(f"    {patterns}) {reply or 'COMPREPLY=()'}; return ;;")
        options = " ".join(option for action in each.options for option in action.option_strings)
        # Without a "-", names come first; where there are none, bash completes the names of files.
        words.append(
            f'    {_quoted(name)}) [[ $word == -* ]] && COMPREPLY=($(compgen -W "{options}" -- "$word"))'
            f' || COMPREPLY=($(compgen -W "{" ".join(each.following)}" -- "$word")) ;;'
        )
    return _BASH.format(commands="|".join(below), values="\n".join(values), words="\n".join(words))


def _zsh(commands: list[Described]) -> str:
    return _ZSH + _bash(commands).partition("\n")[2]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# fish ----------------------------------------------------------------------------------------------------


def _fish(commands: list[Described]) -> str:
    lines = ["# Completion of posh for fish. Put this line into config.fish: posh completion fish | source"]
    for each in commands:
        seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in each.words)
        condition = _quoted(seen.removeprefix("; and ") or "__fish_use_subcommand")
        begin = f"complete -c posh -n {condition}"
        names = [below for below in commands if below.words[:-1] == each.words and below.words]
        lines += [f"{begin} -f -a {below.words[-1]} -d {_quoted(below.summary)}" for below in names]
        lines += [f"{begin} -a {word}" for word in each.following if word not in [n.words[-1] for n in names]]
        for action in each.options:
            flags = " ".join(
                f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                for option in action.option_strings
            )
            values = f" -x -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else " -r"
            lines.append(
                f"{begin} {flags}{'' if action.nargs == 0 else values} -d {_quoted(action.help or '')}"
            )
    return "\n".join(lines)


_SHELLS: dict[str, Callable[[list[Described]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
