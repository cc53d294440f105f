"""Objects of the API as one line, for `repr`: a dataclass's own prints all that is inside."""

MOST_CHARACTERS = 200
"""Of a line."""
NAME_LENGTH = 48
"""Characters of a name; exporters write paths of a hundred."""


def short(name: str, length: int = NAME_LENGTH) -> str:
    """A name of at most that many characters: of longer ones the middle is left out."""
    if len(name) <= length:
        return name
    end = length // 2
    return f"{name[: length - end - 1]}…{name[len(name) - end :]}"


def summary(thing: object, name: str, *facts: str, machine: str = "") -> str:
    """`<Kind name on machine: fact, fact>`: one line of at most MOST_CHARACTERS. Empty names and
    facts are left out.
    """
    where = f" on {short(machine)}" if machine else ""
    head = f"<{type(thing).__name__}{f' {short(name)}' if name else ''}{where}"
    text = ", ".join(fact for fact in facts if fact).replace("\n", " ")
    text = f": {text}" if text else ""
    room = MOST_CHARACTERS - len(head) - 1
    if len(text) > room:
        text = f"{text[: room - 1]}…"
    return f"{head}{text}>".replace("\n", " ")
