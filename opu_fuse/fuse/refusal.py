"""A rule that does not hold, as data; sentences are made when somebody reads them.

The docstring of a predicate is all its text. First line: the message. Paragraphs that begin with
`Change:` say what would make the rule hold, the nearest change first. Gaps are filled with the
facts that the predicate found; a change with a gap that no fact fills does not apply. Keys of the
spec stand in backticks, and "`key` to value" at the end is the value they must have, as YAML.
"""

import functools
import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Words = Mapping[str, object]
Rule = Callable[..., Words | None]

_KEY = re.compile(r"`((?:dataflow|buffers)\.[\w.-]+)`(?: to (?P<value>.+)$)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lever:
    """A change that would make a rule hold. key: what to change in the spec, dotted, "" for changes
    of the model or of options; value: the new value as YAML, "" where more is to be written.
    """

    text: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A rule that does not hold. predicate: the rule; facts: the names and numbers of this case,
    among them other refusals that the message quotes.

    joint: further rules that the same module breaks, all of which must change; also: what stops
    other modules that could have run the operator.
    """

    predicate: Rule
    facts: Words
    joint: tuple["Refusal", ...] = ()
    also: tuple["Refusal", ...] = ()

    @property
    def rule(self) -> str:
        """The rule's name."""
        return self.predicate.__name__

    @property
    def text(self) -> str:
        """What is the matter, with names and numbers."""
        parts = [template(self.predicate).message.format(**self.facts)]
        parts += [other.text for other in (*self.joint, *self.also)]
        return "; ".join(dict.fromkeys(parts))

    @property
    def limit(self) -> object | None:
        """What the machine allows, where the rule is about a size."""
        return self.facts.get("limit")

    @property
    def where(self) -> str:
        """The key of the spec that says so, "" where no spec can help."""
        return next((lever.key for lever in self.levers if lever.key), "")

    @property
    def levers(self) -> tuple[Lever, ...]:
        """Changes of which each alone would have been enough, the nearest first."""
        if self.joint:
            steps = [own for part in (self, *self.joint) if (own := _own(part))]
            text = " and ".join(step[0].text for step in steps)
            return (_lever(text),) if len(steps) == len(self.joint) + 1 else ()
        others = [lever for other in self.also if not other.joint for lever in _own(other)]
        return tuple({lever.text: lever for lever in (*_own(self), *others)}.values())

    @property
    def help(self) -> str:
        """The levers as half a sentence, "" without."""
        return " or ".join(lever.text for lever in self.levers)

    @property
    def reason(self) -> str:
        """What is the matter, and what would help: one sentence."""
        return f"{self.text}; {self.help}" if self.help else self.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A predicate's text: message and changes, with gaps."""

    message: str
    changes: tuple[str, ...]


@functools.cache
def template(rule: Rule) -> Template:
    """The text of a predicate, read from its docstring."""
    lines = [line.strip() for line in (rule.__doc__ or "").splitlines()] or [""]
    changes: list[str] = []
    inside = False
    for line in lines[1:]:
        if line.startswith("Change: "):
            changes.append(line.removeprefix("Change: "))
        elif inside and line:
            changes[-1] += f" {line}"
        inside = bool(changes) and bool(line)
    return Template(message=lines[0], changes=tuple(changes))


def refuse(rule: Rule, words: Words) -> Refusal:
    """A rule that does not hold for these facts."""
    return Refusal(predicate=rule, facts=words)


def gaps(text: str) -> tuple[str, ...]:
    """Names of the gaps of a message or change."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(text) if name)


def _own(refusal: Refusal) -> tuple[Lever, ...]:
    """Changes that the rule's own text offers, else those of the refusals it quotes."""
    own = tuple(_filled(refusal))
    quoted = [f for f in refusal.facts.values() if isinstance(f, Refusal)]
    return own or tuple(lever for cause in quoted for lever in cause.levers)


def _filled(refusal: Refusal) -> Iterator[Lever]:
    for change in template(refusal.predicate).changes:
        if all(refusal.facts.get(name) is not None for name in gaps(change)):
            yield _lever(change.format(**refusal.facts))


def _lever(text: str) -> Lever:
    found = _KEY.search(text)
    if found is None:
        return Lever(text=text, key="", value="")
    return Lever(text=text, key=found[1], value=found["value"] or "")
