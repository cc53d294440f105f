"""Registers into multipliers of ECP5: a netlist of Yosys, whose MULT18X18D cells have none inside.

A product that goes into registers alone is registered inside the multiplier, and so are its
factors where all bits of both come out of registers. A register whose output others read, too,
remains for them. All bits of a port have the same controls (clock, enable). A reset that comes with
the clock becomes logic before a factor; other registers with a reset, or with an inverted clock or
enable, remain as they are.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

_REGISTER, _MULTIPLIER = "TRELLIS_FF", "MULT18X18D"
_NAMES = {"A": "INPUTA", "B": "INPUTB", "P": "OUTPUT"}
_ENABLES = {"A": "CE0", "B": "CE1", "P": "CE2"}
_WIDTHS = {"A": 18, "B": 18, "P": 36}
_TABLES = {"RESET": f"{0x2222:016b}", "SET": f"{0xEEEE:016b}"}
"""LUT4 of data (A) and reset (B): data and not reset, data or reset."""

_Bit = int | str
"""Number of a net, or a constant."""


class _Control(NamedTuple):
    """Control inputs of a register. enable: "1" if it loads every cycle."""

    clock: _Bit
    enable: _Bit


def with_registers(netlist: dict[str, Any]) -> int:
    """Changes a netlist (JSON of Yosys, flat except for black boxes); returns how many ports of
    multipliers have registers now.
    """
    modules = [module for module in netlist["modules"].values() if module.get("cells")]
    return sum(_Module(module).changed() for module in modules)


class _Module:
    """A flat module. readers: inputs of cells and ports of the module at a net; into, out_of: the
    register at whose input or output a net is; tables: what a register takes, its reset included;
    unused: the next number of a net.
    """

    def __init__(self, module: dict[str, Any]) -> None:
        self.module = module
        self.cells: dict[str, Any] = module["cells"]
        self.readers = self._count()
        registers = [(n, c) for n, c in self.cells.items() if c["type"] == _REGISTER]
        self.into = {c["connections"]["DI"][0]: n for n, c in registers if "DI" in c["connections"]}
        self.out_of = {c["connections"]["Q"][0]: n for n, c in registers if "Q" in c["connections"]}
        self.tables: dict[str, _Bit] = {}
        wires = (bits for cell in self.cells.values() for bits in cell["connections"].values())
        self.unused = 1 + max(bit for bits in wires for bit in bits if isinstance(bit, int))

    def _count(self) -> dict[_Bit, int]:
        readers: dict[_Bit, int] = defaultdict(int)
        for port in self.module["ports"].values():
            for bit in port["bits"]:
                readers[bit] += 1
        for cell in self.cells.values():
            for port, bits in cell["connections"].items():
                for bit in bits:
                    readers[bit] += cell["port_directions"][port] == "input"
        return readers

    def changed(self) -> int:
        """Ports that have registers now."""
        multipliers = [cell for cell in self.cells.values() if cell["type"] == _MULTIPLIER]
        result = sum(self._product(cell) for cell in multipliers)
        result += sum(self._factors(cell) for cell in multipliers)
        readers = self._count()
        for name in [n for n, c in self.cells.items() if c["type"] == _REGISTER]:
            if not readers[self.cells[name]["connections"].get("Q", ["0"])[0]]:
                del self.cells[name]
        return result

    def _product(self, cell: dict[str, Any]) -> int:
        """Absorbs the output registers of a product that has no other reader: returns 1, else 0."""
        controls: set[_Control | None] = set()
        registers: dict[str, str] = {}
        for at, bit in _bits(cell, "P"):
            if not self.readers[bit]:
                continue
            name = self.into.get(bit)
            if self.readers[bit] > 1 or name is None or not _is_plain(self.cells[name]):
                return 0
            registers[at] = name
            controls.add(_control_of(self.cells[name]))
        if len(controls) != 1 or (control := controls.pop()) is None:
            return 0
        for at, name in registers.items():
            (output,) = cell["connections"][at] = self.cells.pop(name)["connections"]["Q"]
            self.out_of.pop(output)
        _set_control(cell, "P", control)
        return 1

    def _factors(self, cell: dict[str, Any]) -> int:
        """Absorbs the input registers of both factors, if both have them: returns 2, else 0."""
        controls = {port: self._control_before(cell, port) for port in "AB"}
        if None in controls.values():
            return 0
        for port, control in controls.items():
            assert control is not None
            for at, bit in _bits(cell, port):
                if bit in self.out_of:
                    cell["connections"][at] = [self._taken(self.out_of[bit])]
            _set_control(cell, port, control)
        return 2

    def _control_before(self, cell: dict[str, Any], port: str) -> _Control | None:
        controls: set[_Control | None] = set()
        for _, bit in _bits(cell, port):
            if bit == "0":
                continue
            if bit not in self.out_of:
                return None
            register = self.cells[self.out_of[bit]]
            control = _control_of(register)
            # A reset that acts without the enable cannot be expressed by the data input.
            if not _is_plain(register) and (control is None or control.enable != "1"):
                return None
            controls.add(control)
        return controls.pop() if len(controls) == 1 else None

    def _taken(self, name: str) -> _Bit:
        """What a register takes with the next clock."""
        register = self.cells[name]
        (data,) = register["connections"]["DI"]
        if _is_plain(register):
            return data
        if name not in self.tables:
            output = self.tables[name] = self.unused
            self.unused += 1
            inputs = {"A": data, "B": register["connections"]["LSR"][0], "C": "0", "D": "0"}
            self.cells[f"{name}_RESET"] = {
                "hide_name": 1,
                "type": "LUT4",
                "parameters": {"INIT": _TABLES[register["parameters"]["REGSET"]]},
                "attributes": {},
                "port_directions": dict.fromkeys(inputs, "input") | {"Z": "output"},
                "connections": {at: [bit] for at, bit in inputs.items()} | {"Z": [output]},
            }
        return self.tables[name]


def _bits(cell: dict[str, Any], port: str) -> Iterator[tuple[str, _Bit]]:
    for at in (f"{port}{n}" for n in range(_WIDTHS[port])):
        if at in cell["connections"]:
            yield at, cell["connections"][at][0]


def _is_plain(register: dict[str, Any]) -> bool:
    """Without a reset. What it holds before the first clock is 0, as in a multiplier."""
    wired = register["connections"].get("LSR", ["0"]) == ["0"]
    return wired and register["parameters"].get("REGSET", "RESET") == "RESET"


def _control_of(register: dict[str, Any]) -> _Control | None:
    """None for a register that no multiplier can absorb, whatever drives it."""
    parameters, wires = register["parameters"], register["connections"]
    usual = {"CLKMUX": "CLK", "LSRMUX": "LSR", "GSR": "DISABLED", "SRMODE": "LSR_OVER_CE"}
    if any(parameters.get(name, value) != value for name, value in usual.items()):
        return None
    enabled = parameters.get("CEMUX", "CE").strip()
    if enabled not in ("1", "CE") or not {"CLK", "DI", "Q"} <= wires.keys():
        return None
    return _Control(wires["CLK"][0], "1" if enabled == "1" else wires["CE"][0])


def _set_control(cell: dict[str, Any], port: str, control: _Control) -> None:
    name, enable = _NAMES[port], _ENABLES[port]
    cell["parameters"] |= {
        f"REG_{name}_CLK": "CLK0",
        f"REG_{name}_CE": enable,
        f"REG_{name}_RST": "RST0",
        "RESETMODE": "SYNC",
    }
    for at, bit in {"CLK0": control.clock, "RST0": "0", enable: control.enable}.items():
        cell["connections"][at] = [bit]
        cell["port_directions"][at] = "input"
