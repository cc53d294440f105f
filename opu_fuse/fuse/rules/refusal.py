"""Refusals: a broken rule as data. Its sentences are formatted lazily, when somebody reads them.

The docstring of a predicate holds all its text. Its first line is the message. Paragraphs that
begin with `Change:` say what would make the rule hold, the smallest change first. The predicate's
facts fill the gaps; a change with an unfilled gap does not apply. `{x:own}` is the name of x in the
user's file (`model/names.py`). Backticks mark keys of the spec; "`key` to value" at the end of a
change is the value to set, as YAML.
"""

import functools
import itertools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from opu_fuse.summaries import summary

Words = Mapping[str, object]
Rule = Callable[..., Words | None]

_KEY = re.compile(r"`((?:dataflow|buffers)\.[\w.-]+)`(?: to (?P<value>.+)$)?")


class Lever(Struct, frozen=True, kw_only=True):
    """A change that would make a rule hold.

    spec: (key, value) pairs to change in the spec, empty for changes of the model or of options;
    keys are dotted, values are YAML, "" where one value is not enough. added: the module that the
    change adds, None for none.
    """

    text: str
    spec: tuple[tuple[str, str], ...]
    added: object = None


Trial = Callable[[Lever], Lever | None]
_MOST_TRIED = 8
"""Most combinations of changes that are tried for jointly broken rules."""


class Refusal(Struct, frozen=True, kw_only=True):
    """A broken rule.

    predicate: the rule.
    facts: the names and numbers of this case, and other refusals that the message quotes.
    joint: further rules that this module breaks, all of which must change.
    also: refusals of other candidate modules.
    further: refusals of modules that the text leaves out, whose changes are offered only where no
    other one helps.
    trial: maps a change to the form in which it is shown, or to None where it does not help; None
    where changes cannot be tried.
    """

    predicate: Rule
    facts: Words
    joint: tuple["Refusal", ...] = ()
    also: tuple["Refusal", ...] = ()
    further: tuple["Refusal", ...] = ()
    trial: Trial | None = None

    def __repr__(self) -> str:
        return summary(self, self.rule, self.text)

    @property
    def rule(self) -> str:
        """The rule's name."""
        return self.predicate.__name__

    @property
    def text(self) -> str:
        """The messages of all broken rules, with names and numbers."""
        parts = (self, *self.joint, *self.also)
        return "; ".join(dict.fromkeys([part.message for part in parts]))

    @property
    def message(self) -> str:
        """This rule's part of the text."""
        return template(self.predicate).message.format(**self.facts)

    @property
    def limit(self) -> object | None:
        """The machine's limit if the rule is about a size, else None."""
        return self.facts.get("limit")

    @property
    def where(self) -> str:
        """The first key of the spec to change, "" where no change of the spec helps."""
        return next((lever.spec[0][0] for lever in self.levers if lever.spec), "")

    @property
    def levers(self) -> tuple[Lever, ...]:
        """Alternative changes, the smallest first; each alone is sufficient.

        Of one module's changes of the spec only the first that helps is included.
        """
        others = (other for other in self.also if not (self.joint or other.joint))
        offered = [lever for part in (self, *others) for lever in _helping(part, self.trial)]
        if not any(lever.spec for lever in offered):
            further = (lever for part in self.further for lever in _helping(part, self.trial))
            offered += itertools.islice((lever for lever in further if lever.spec), 1)
        return tuple({lever.text: lever for lever in offered}.values())

    @property
    def help(self) -> str:
        """The levers joined by "or", "" without levers."""
        return " or ".join([lever.text for lever in self.levers])

    @property
    def reason(self) -> str:
        """Text and help as one sentence."""
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


def refuse(rule: Rule, words: Words, trial: Trial | None = None) -> Refusal:
    """A rule that does not hold for these facts."""
    return Refusal(predicate=rule, facts=words, trial=trial)


def _unasked(words: Words) -> Words | None:
    """Nobody has asked yet"""
    return words


UNASKED = Refusal(predicate=_unasked, facts={})
"""Sentinel in memo tables: no verdict yet."""


def first_refusal(rules: Iterable[Rule], *facts: object) -> Refusal | None:
    """The first broken rule with its facts, None if all hold."""
    for rule in rules:
        words = rule(*facts)
        if words is not None:
            return refuse(rule, words)
    return None


@functools.cache
def gaps(text: str) -> tuple[str, ...]:
    """Names of the gaps of a message or change."""
    return tuple(name for _, name, _, _ in string.Formatter().parse(text) if name)


def _helping(refusal: Refusal, trial: Trial | None) -> Iterator[Lever]:
    """A refusal's changes of the model, and the first of its changes of the spec that helps.

    Changes for joint rules are combined into one.
    """
    parts = [_own(part) for part in (refusal, *refusal.joint)]
    spec = False
    for lever in _together(parts) if refusal.joint else parts[0]:
        shown = lever if trial is None else trial(lever)
        if shown is not None and not (spec and shown.spec):
            yield shown
            spec = spec or bool(shown.spec)


def _own(refusal: Refusal) -> tuple[Lever, ...]:
    """Changes from the rule's own text, else those of the refusals that it quotes."""
    facts = refusal.facts
    changes = template(refusal.predicate).changes
    filled = [c for c in changes if _applies(c, facts)]
    if filled:
        return tuple([_lever(change, facts) for change in filled])
    quoted = [f for f in facts.values() if isinstance(f, Refusal)]
    return tuple([lever for cause in quoted for lever in cause.levers])


def _applies(change: str, facts: Words) -> bool:
    """Whether facts fill all gaps of a change, `own` gaps with a name of the user's file."""
    for _, name, spec, _ in string.Formatter().parse(change):
        fact = facts.get(name) if name else ""
        if fact is None or (spec == "own" and not format(fact, spec)):
            return False
    return True


def _together(parts: Sequence[tuple[Lever, ...]]) -> Iterator[Lever]:
    """Combinations of one lever per part: all of the model or all of the spec.

    Without such a combination, the first lever of each part.
    """
    combined = False
    for spec in (False, True):
        of_kind = [[lever for lever in part if bool(lever.spec) is spec] for part in parts]
        for choice in itertools.islice(itertools.product(*of_kind), _MOST_TRIED if spec else 1):
            combined = True
            yield _joined(choice)
    if not combined and all(parts):
        yield _joined([part[0] for part in parts])


def _joined(levers: Sequence[Lever]) -> Lever:
    text = " and ".join(dict.fromkeys([lever.text for lever in levers]))
    added = next((lever.added for lever in levers if lever.added is not None), None)
    return Lever(text=text, spec=tuple(key for lever in levers for key in lever.spec), added=added)


def _lever(change: str, facts: Words) -> Lever:
    return _worded(change.format(**facts), facts.get("new") if "{new}" in change else None)


@functools.lru_cache(maxsize=1024)
def _worded(text: str, added: object) -> Lever:
    matches = _KEY.finditer(text)
    keys = tuple((m[1], m["value"] or "") for m in matches)
    return Lever(text=text, spec=keys, added=added)
