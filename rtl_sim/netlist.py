"""The distinct modules of an elaborated design, out of its RTLIL text.

Yosys' slang frontend makes a module of every instance, `source$path.of.instance`. Equal ones become
one, so each is synthesised once and counted as often as it stands in the design.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass

_MODULE = re.compile(r"^module \\(\S+)\n(.*?)^end\n", re.MULTILINE | re.DOTALL)
_ORIGIN = re.compile(r"^ *attribute \\(?:src|hdlname) .*\n", re.MULTILINE)
_INSTANCE = re.compile(r"^  cell \\(\S+) ", re.MULTILINE)
_PORT = re.compile(r"^  wire .*(?:input|output) .*\n", re.MULTILINE)
_NUMBER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """name: `source$hash`, the hash over the content; body: RTLIL between `module` and `end`;
    instances: how often it stands in the design.
    """

    name: str
    body: str
    instances: int

    @property
    def source(self) -> str:
        return self.name.partition("$")[0]

    @property
    def children(self) -> frozenset[str]:
        """Names of the modules that stand in it."""
        return frozenset(_INSTANCE.findall(self.body))

    def text(self) -> str:
        return f"module \\{self.name}\n{self.body}end\n"

    def shell(self) -> str:
        """The module as a black box: ports only."""
        ports = "".join(_PORT.findall(self.body))
        return f"attribute \\blackbox 1\nmodule \\{self.name}\n{ports}end\n"


def distinct_modules(rtlil: str) -> tuple[Module, ...]:
    """The modules of a design with its hierarchy kept, children before their parents."""
    bodies = {m[1]: m[2] for m in _MODULE.finditer(_ORIGIN.sub("", rtlil))}
    names: dict[str, str] = {}
    merged: dict[str, str] = {}

    def rename(name: str) -> str:
        if name not in names:
            body = _INSTANCE.sub(lambda m: f"  cell \\{rename(m[1])} ", bodies[name])
            names[name] = f"{name.partition('$')[0]}${_content_hash(body)}"
            merged.setdefault(names[name], body)
        return names[name]

    instances = Counter(rename(name) for name in bodies)
    return tuple(
        Module(name=name, body=body, instances=instances[name]) for name, body in merged.items()
    )


def _content_hash(body: str) -> str:
    """Equal for bodies that differ in the numbers of unnamed things only."""
    numbers: dict[str, int] = {}
    content = _NUMBER.sub(lambda m: f"${numbers.setdefault(m[1], len(numbers))}", body)
    return hashlib.sha256(content.encode()).hexdigest()[:12]
