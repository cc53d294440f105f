"""Write the generated parts of docs/commands.md: usage, arguments and options of every verb.

`python -m opu_fuse.cli.commands_page` replaces the lines between a verb's two comment lines by
its help texts. The text around them, examples included, is written by hand.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import typer.main

from opu_fuse.cli.main import app
from opu_fuse.errors import UserError
from opu_fuse.generated_files import write_generated

PAGE = "docs/commands.md"
_PART = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_HEADER = ("| argument or option | meaning | default |", "|---|---|---|")
Command = Any
Parameter = Any
"""Click's; Typer has its own copy of them since 0.29, and they have no common type."""
BEFORE = "opu-fuse"
"""The part about options that precede the verb."""


def commands_page(text: str) -> str:
    """The page with its generated parts written anew. Errors: UserError for a part of no verb, and
    for a verb without its part.
    """
    parts = dict(verb_parts())
    found = [name for _, name, _, _ in _PART.findall(text)]
    if wrong := sorted(set(found) ^ set(parts)) or [n for n in found if found.count(n) > 1]:
        raise UserError(
            PAGE,
            f"parts differ from the verbs: {', '.join(wrong)}",
            "give each verb one pair of lines `<!-- generated: VERB -->` and `<!-- end -->`",
        )
    return _PART.sub(lambda part: f"{part[1]}{parts[part[2]]}{part[4]}", text)


def verb_parts() -> Iterator[tuple[str, str]]:
    """Name of each verb, such as `hw show`, and its part of the page."""
    root: Command = typer.main.get_command(app)
    yield BEFORE, "\n".join([*_table(root.params), ""])
    for words, command in _verbs(root.commands, ()):
        yield " ".join(words), "\n".join(_part(words, command))


def _verbs(
    commands: Mapping[str, Command], words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name, command in commands.items():
        if (inner := getattr(command, "commands", None)) is not None:
            yield from _verbs(inner, (*words, name))
        else:
            yield (*words, name), command


def _part(words: tuple[str, ...], command: Command) -> Iterator[str]:
    """Purpose, usage and table of a verb."""
    yield f"{_linked(' '.join((command.help or '').split()))}\n"
    usage = [_signature(p) for p in command.params if p.required]
    optional = ["[OPTIONS]"] if any(not p.required for p in command.params) else []
    yield f"```\n{' '.join(['opu-fuse', *words, *usage, *optional])}\n```\n"
    yield from _table(command.params)
    if command.params:
        yield ""


def _table(parameters: Iterable[Parameter]) -> Iterator[str]:
    """What is required comes first; the order within is that of `--help`."""
    rows = sorted(parameters, key=lambda p: not p.required)
    if not rows:
        return
    yield from _HEADER
    for parameter in rows:
        names = [*parameter.opts] if _is_option(parameter) else []
        named = ", ".join(f"`{name}`" for name in names[:-1])
        last = f"`{_signature(parameter)}`".replace("|", "\\|")
        first = f"{named}, {last}" if named else last
        yield f"| {first} | {_meaning(parameter)} | {_default(parameter)} |"


def _signature(parameter: Parameter) -> str:
    """`--strategy NAME`, `MODEL.onnx`."""
    if not _is_option(parameter):
        return _value(parameter)
    name = parameter.opts[-1]
    return name if getattr(parameter, "is_flag", False) else f"{name} {_value(parameter)}"


def _value(parameter: Parameter) -> str:
    if isinstance(parameter.default, Enum):
        return "|".join(choice.value for choice in type(parameter.default))
    return parameter.metavar


def _meaning(parameter: Parameter) -> str:
    """Help, range and whether it may be repeated; a default in the help is for the last column."""
    text = _without_default(parameter.help or "")[0]
    if text.endswith("."):  # a sentence of Typer's own
        text = text[0].lower() + text[1:-1]
    low, high = parameter.min, parameter.max
    if low is not None and high is not None:
        text += f"; {low:g} to {high:g}"
    elif low:
        text += f"; at least {low:g}"
    if getattr(parameter, "multiple", False):
        text += "; may be repeated"
    return _linked(text)


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    stated = _without_default(parameter.help or "")[1]
    default = parameter.default
    if stated or default in (None, "") or isinstance(default, bool):
        return _linked(stated) or "–"
    return f"`{getattr(default, 'value', default)}`"


_STATED = re.compile(r"; default: (.*?)(?=$| \()")


def _without_default(text: str) -> tuple[str, str]:
    """Help without `; default: …`, and what the default is."""
    stated = _STATED.search(text)
    return (_STATED.sub("", text), stated[1]) if stated else (text, "")


def _linked(text: str) -> str:
    """Names of pages become links, options code; bars are escaped."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"(?<![\w-])(--[a-z][a-z-]+)", r"`\1`", part) for part in parts[::2]]
    page = r"\(?docs/(([\w-]+)\.md(?:#[\w-]+)?)\)?"
    linked = re.sub(page, lambda m: f"([{m[2].replace('-', ' ')}]({m[1]}))", "`".join(parts))
    return linked.replace("|", "\\|")


def _is_option(parameter: Parameter) -> bool:
    return parameter.param_type_name == "option"


if __name__ == "__main__":
    raise SystemExit(
        write_generated(lambda project: {PAGE: commands_page((project / PAGE).read_text("utf-8"))})
    )
