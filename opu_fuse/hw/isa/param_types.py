"""The types of instruction parameters, generated from the ISA table as the SystemVerilog structs
are: the type checker reports a register that does not exist.
"""

from opu_fuse.hw.isa.table import Engine, Register, parameters_of
from opu_fuse.units.base import Stage

_HEAD = '''"""Parameters of instructions, by engine: what it latches when it starts.

Registers of units are those of the first one; values are integers of the register's width.

Generated from the ISA table by `python -m opu_fuse.hw.rtlgen.generate`; do not edit.
"""

from typing import TypedDict
'''

_WIDTH = 100
"""Columns of a line of Python (pyproject.toml)."""


def params_module() -> str:
    """Text of `opu_fuse/units/params.py`."""
    return _HEAD + "".join(map(_engine, Engine))


def _engine(engine: Engine) -> str:
    """A type for the registers of every unit, which the engine's inherits, and for its own."""
    registers = parameters_of(engine)
    stages = sorted({r.stage for r in registers if r.stage is not None})
    units = {_name(stage): [r for r in registers if r.stage is stage] for stage in stages}
    name, own = f"{_name(engine)}Params", [r for r in registers if r.stage is None]
    return "".join(
        _type(f"{unit}Registers", ["TypedDict"], f"Registers of one {unit.upper()} unit.", of)
        for unit, of in units.items()
    ) + _type(
        name,
        [f"{unit}Registers" for unit in units] or ["TypedDict"],
        f"Parameters of the {engine.name.lower()} engine's instructions.",
        own,
    )


def _name(which: Engine | Stage) -> str:
    return which.name.capitalize()


def _type(name: str, bases: list[str], doc: str, registers: list[Register]) -> str:
    fields = "".join(f'\n    {r.name}: int\n    """{r.doc}"""' for r in registers)
    head = f"class {name}({', '.join(bases)}):"
    if len(head) > _WIDTH:
        head = "\n".join([f"class {name}(", *(f"    {base}," for base in bases), "):"])
    return f'\n\n{head}\n    """{doc}"""\n{fields}\n'
