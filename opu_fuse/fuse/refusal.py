"""A rule that does not hold, as data; sentences are made when somebody reads them.

The docstring of a predicate is all its text. First line: the message. Paragraphs that begin with
`Change:` say what would make the rule hold, the nearest change first. Gaps are filled with the
facts that the predicate found; a change with a gap that no fact fills does not apply. `{x:own}` is
what the user's file calls x (`model/names.py`). Keys of the
spec stand in backticks, and "`key` to value" at the end is the value they must have, as YAML.
"""

import functools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

Words = Mapping[str, object]
Rule = Callable[..., Words | None]

_KEY = re.compile(r"`((?:dataflow|buffers)\.[\w.-]+)`(?: to (?P<value>.+)$)?")


class Lever(Struct, frozen=True, kw_only=True):
    """A change that would make a rule hold. spec: (key, value) of everything to change in the spec,
    empty for changes of the model or of options; keys are dotted, values YAML, "" where more is to
    be written than a value.
    """

    text: str
    spec: tuple[tuple[str, str], ...]


class Refusal(Struct, frozen=True, kw_only=True):
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
        parts = (self, *self.joint, *self.also)
        return "; ".join(dict.fromkeys([part.message for part in parts]))

    @property
    def message(self) -> str:
        """This rule's part of the text."""
        return template(self.predicate).message.format(**self.facts)

    @property
    def limit(self) -> object | None:
        """What the machine allows, where the rule is about a size."""
        return self.facts.get("limit")

    @property
    def where(self) -> str:
        """The key of the spec that says so, "" where no spec can help."""
        return next((lever.spec[0][0] for lever in self.levers if lever.spec), "")

    @property
    def levers(self) -> tuple[Lever, ...]:
        """Changes of which each alone would have been enough, the nearest first."""
        if self.joint:
            return tuple(_together([_own(part) for part in (self, *self.joint)]))
        others = [lever for other in self.also if not other.joint for lever in _own(other)]
        own = (*_own(self), *others)
        return own if len(own) < 2 else tuple({lever.text: lever for lever in own}.values())

    @property
    def help(self) -> str:
        """The levers as half a sentence, "" without."""
        return " or ".join([lever.text for lever in self.levers])

    @property
    def reason(self) -> str:
        """What is the matter, and what would help: one sentence."""
        return "; ".join(filter(None, (self.text, self.help)))

    def __str__(self) -> str:
        return self.text


class Template(Struct, frozen=True, kw_only=True):
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


def _unasked(words: Words) -> Words | None:
    """Nobody has asked yet"""
    return words


UNASKED = Refusal(predicate=_unasked, facts={})
"""In tables of remembered verdicts: what a `get` finds where there is none yet."""


def first_refusal(rules: Iterable[Rule], *facts: object) -> Refusal | None:
    """The first rule that does not hold, worded."""
    for rule in rules:
        words = rule(*facts)
        if words is not None:
            return refuse(rule, words)
    return None


@functools.cache
def gaps(text: str) -> tuple[str, ...]:
    """Names of the gaps of a message or change."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(text) if name)


def _own(refusal: Refusal) -> tuple[Lever, ...]:
    """Changes that the rule's own text offers, else those of the refusals it quotes."""
    facts = refusal.facts
    changes = template(refusal.predicate).changes
    filled = [c for c in changes if _applies(c, facts)]
    if filled:
        return tuple([_lever(change.format(**facts)) for change in filled])
    quoted = [f for f in facts.values() if isinstance(f, Refusal)]
    return tuple([lever for cause in quoted for lever in cause.levers])


def _applies(change: str, facts: Words) -> bool:
    """Whether all of its gaps are filled, those about the user's file with a name from there."""
    for _, name, spec, _ in string.Formatter().parse(change):
        fact = facts.get(name) if name else ""
        if fact is None or (spec == "own" and not format(fact, spec)):
            return False
    return True


def _together(parts: Sequence[tuple[Lever, ...]]) -> Iterator[Lever]:
    """One lever of every part, all of the model or all of the spec; else the first of each."""
    alike = []
    for spec in (False, True):
        of_kind = [[lever for lever in part if bool(lever.spec) is spec] for part in parts]
        alike += [of_kind] if all(of_kind) else []
    for choice in alike or ([list(parts)] if all(parts) else []):
        first = [levers[0] for levers in choice]
        text = " and ".join(dict.fromkeys([lever.text for lever in first]))
        yield Lever(text=text, spec=tuple(key for lever in first for key in lever.spec))


@functools.lru_cache(maxsize=1024)
def _lever(text: str) -> Lever:
    found = _KEY.finditer(text)
    return Lever(text=text, spec=tuple((m[1], m["value"] or "") for m in found))
