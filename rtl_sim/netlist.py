"""The distinct modules of an elaborated design, out of its RTLIL text.

Yosys' slang frontend makes a module of every instance, `source$path.of.instance`. Equal ones become
one, so each is synthesised once and counted once for each of its instances.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opu_fuse.errors import RunError

_MODULE = re.compile(r"^module \\(\S+)\n(.*?)^end\n", re.MULTILINE | re.DOTALL)
_ORIGIN = re.compile(r"^ *attribute \\(?:src|hdlname) .*\n", re.MULTILINE)
_INSTANCE = re.compile(r"^  cell \\(\S+) ", re.MULTILINE)
_PORT = re.compile(r"^  wire .*(?:input|output) .*\n", re.MULTILINE)
_NUMBER = re.compile(r"\$(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """name: `source$hash`, the hash over the content; body: RTLIL between `module` and `end`;
    paths: of its instances in the design, the top's is empty.
    """

    name: str
    body: str
    paths: tuple[str, ...]

    @property
    def instances(self) -> int:
        """Number of instances in the design."""
        return len(self.paths)

    @property
    def source(self) -> str:
        return self.name.partition("$")[0]

    @property
    def children(self) -> frozenset[str]:
        """Names of the modules instantiated in it."""
        return frozenset(_INSTANCE.findall(self.body))

    def text(self) -> str:
        return f"module \\{self.name}\n{self.body}end\n"

    def shell(self) -> str:
        """The module as a black box: ports only."""
        ports = "".join(_PORT.findall(self.body))
        return f"attribute \\blackbox 1\nmodule \\{self.name}\n{ports}end\n"


def distinct_modules(rtlil: str) -> tuple[Module, ...]:
    """The modules of a design with its hierarchy preserved, children before their parents."""
    bodies = {m[1]: _numbered(m[2]) for m in _MODULE.finditer(_ORIGIN.sub("", rtlil))}
    names: dict[str, str] = {}
    merged: dict[str, str] = {}

    def rename(name: str) -> str:
        if name not in names:
            body = _INSTANCE.sub(lambda m: f"  cell \\{rename(m[1])} ", bodies[name])
            digest = hashlib.sha256(body.encode()).hexdigest()[:12]
            names[name] = f"{name.partition('$')[0]}${digest}"
            merged.setdefault(names[name], body)
        return names[name]

    paths: dict[str, list[str]] = {}
    for name in bodies:
        paths.setdefault(rename(name), []).append(name.partition("$")[2])
    return tuple(
        Module(name=name, body=body, paths=tuple(paths[name])) for name, body in merged.items()
    )


def find_module(modules: Sequence[Module], wanted: str) -> Module:
    """The module of that name, of several with different parameters the largest, or the one at an
    instance (`u_engines.u_load.u_walk`). Raises RunError when the machine has none.
    """
    at = f"opu_top.{wanted}"
    results = [m for m in modules if wanted == m.source or at in m.paths]
    if not results:
        names = ", ".join(sorted({m.source for m in modules}))
        raise RunError("synthesis", f"the machine has no module {wanted}", f"it has {names}")
    return max(results, key=lambda m: len(m.body))


def with_children(modules: Sequence[Module], top: Module) -> str:
    """RTLIL of a module and all below it. modules: children before their parents."""
    needed = {top.name}
    for module in reversed(modules):
        if module.name in needed:
            needed |= module.children
    return "".join(m.text() for m in modules if m.name in needed)


def _numbered(body: str) -> str:
    """Unnamed things numbered from 0 on, not on from those of the modules before."""
    numbers: dict[str, int] = {}
    return _NUMBER.sub(lambda m: f"${numbers.setdefault(m[1], len(numbers))}", body)
