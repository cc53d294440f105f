"""Place and route: what the tool makes of reports and modules; a small module on a real device."""

import re
from pathlib import Path
from statistics import median

import pytest

from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from rtl_sim import pnr
from rtl_sim.delays import CriticalPath, read_critical_path
from rtl_sim.netlist import distinct_modules, find_module, with_children

pytestmark = pytest.mark.rtl
TINY = load_hw("opu-tiny")
PAGE = Path(__file__).parents[2] / "docs/synthesis.md"
DESIGN = r"""
module \other
  wire width 2 input 1 \no
end
module \opu_part
  wire width 1 input 1 \clk_i
  wire input 2 \rst_ni
  wire width 5 input 3 \a_i
  wire width 3 \inside
  wire width 7 signed output 4 \b_o
  wire output 5 \c_o
end
"""


def test_wrapper_feeds_all_inputs_and_takes_all_outputs():
    text = pnr._wrapper(DESIGN, "opu_part")
    assert ".clk_i(clk), .rst_ni(reset_q), .a_i(inputs[0 +: 5])" in text
    assert ".b_o(outputs[0 +: 7]), .c_o(outputs[7 +: 1])" in text
    assert "reg [8:0] captured" in text


MACHINE = r"""
module \opu_top
  cell \opu_queue$opu_top.u_a \u_a
  end
  cell \opu_queue$opu_top.u_b \u_b
  end
end
module \opu_queue$opu_top.u_a
  wire width 4 input 1 \deep
  cell \opu_ram$opu_top.u_a.u_ram \u_ram
  end
end
module \opu_ram$opu_top.u_a.u_ram
  wire width 64 input 1 \bits
end
module \opu_queue$opu_top.u_b
  wire input 1 \d
end
"""


def test_module_has_the_parameters_of_the_machine():
    modules = distinct_modules(MACHINE)
    largest, named = (find_module(modules, name) for name in ("opu_queue", "u_b"))
    assert (largest.paths, named.paths) == (("opu_top.u_a",), ("opu_top.u_b",))
    text = with_children(modules, largest)
    assert text.count("module") == 2
    assert r"\bits" in text
    assert f"{largest.name} dut" in pnr._wrapper(text, largest.name)
    with pytest.raises(RunError, match=r"no module opu_walk.*opu_queue, opu_ram, opu_top"):
        find_module(modules, "opu_walk")


def test_an_eighth_of_opu_1024_has_its_units_and_addresses():
    eighth, full = (load_hw(name) for name in ("benchmarks/opu-1024-eighth.yaml", "opu-1024"))
    assert eighth.word_channels * 8 == full.word_channels
    assert eighth.dataflow == full.dataflow
    assert max(m.px for m in eighth.array.modes) == max(m.px for m in full.array.modes)
    for name in ("feature", "weight", "param", "residual", "psum", "output", "pre"):
        assert getattr(eighth.buffers, name).words == getattr(full.buffers, name).words


STA = """
22. Executing STA pass (static timing analysis).
Latest arrival time in 'opu_round$ecefface941d' is 2795:
    2795 (<primary output>)
           \\result_o [7]
    2795 $abc$3071$blif$3071$0 (LUT5.I1->O)
           \\rounded [8]
    2323 $auto$alumacc.cc:578:replace_alu$1099.genblk1.slice[2].genblk1.carry4 (CARRY4.CI->O)
           \\middle_q [2]
     303 $auto$ff.cc:337:slice$2839 (FDRE.C->Q)
       0   \\clk_i (<primary input>)

Arrival histogram:
"""


def test_longest_way_through_cells_is_told_first_cell_first():
    assert read_critical_path(STA) == CriticalPath(ns=2.795, cells=("FDRE", "CARRY4", "LUT5"))
    assert read_critical_path("No timing paths found.") == CriticalPath(ns=0.0, cells=())


def test_long_ways_are_told_by_the_module_where_they_end():
    def net(event, *ends):
        found = [{"cell": c, "delay": [1.0, d], "event": "posedge $clk"} for c, d in ends]
        return {"event": event, "endpoints": found}

    report = {
        "fmax": {},
        "detailed_net_timings": [
            net("posedge $clk", ("dut.u_a.x_TRELLIS_FF_Q", 9.0), ("dut.u_b.y_TRELLIS_FF_Q", 9.5)),
            net("posedge $clk", ("dut.u_a.x_TRELLIS_FF_Q", 9.7), ("dut.u_c.z_TRELLIS_FF_Q", 8.0)),
            net("posedge $clk", ("dut.u_a.w_TRELLIS_FF_Q", 10.0)),
            net("<async>", ("dut.u_c.z_TRELLIS_FF_Q", 12.0)),
        ],
    }
    assert pnr._shortened(report) == {"fmax": {}, "ends": [("u_a", 10.0, 2), ("u_b", 9.5, 1)]}


def test_path_of_the_slowest_clock_is_told_instance_by_instance():
    def step(kind, delay, cell):
        return {"type": kind, "delay": delay, "from": {"cell": "x"}, "to": {"cell": cell}}

    report = {
        "fmax": {
            "$late": {"achieved": 400.0, "constraint": 150.0},
            "$clk": {"achieved": 87.5, "constraint": 150.0},
        },
        "utilization": {"MULT18X18D": {"used": 3, "available": 156}},
        "ends": [["u_a", 9.0, 2]],
        "critical_paths": [
            {"from": "<async>", "to": "posedge $clk", "path": [step("logic", 9.0, "dut.u_no.z")]},
            {
                "from": "posedge $late",
                "to": "posedge $late",
                "path": [step("routing", 2.0, "dut.u_no.z")],
            },
            {
                "from": "posedge $clk",
                "to": "posedge $clk",
                "path": [
                    step("clk-to-q", 0.5, "dut.u_a.q_TRELLIS_FF_Q"),
                    step("routing", 1.0, "dut.u_a.u_b.g_lane[0].x_LUT4_Z"),
                    step("logic", 0.25, "dut.u_a.u_b.y_LUT4_Z"),
                    step("setup", 0.25, "dut.state_q_TRELLIS_FF_Q"),
                ],
            },
        ],
    }
    found = pnr.routed(report)
    assert found.mhz == 87.5
    assert found.used == {"MULT18X18D": (3, 156)}
    assert found.path == (("u_a", 0.5, 0.0), ("u_a.u_b", 1.25, 1.0), ("top", 0.25, 0.0))
    assert found.ends == (("u_a", 9.0, 2),)


def test_without_the_tool_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RunError, match=r"opu-fuse\[pnr\]"):
        pnr.place_and_route(TINY)


@pytest.mark.nightly
def test_a_rounding_lane_is_placed_and_routed():
    (found,) = pnr.place_and_route(TINY, module="opu_round")
    assert found.used["TRELLIS_FF"][0] > 50, "the wrapper's registers at least"
    assert found.mhz > 100


@pytest.mark.nightly
def test_the_whole_of_tiny_holds_the_documented_clock():
    """Within 5 %: seeds differ by as much."""
    page = PAGE.read_text()
    documented = re.search(r"opu-tiny, whole, on LFE5U-85F-8 \| ([\d.]+) MHz", page)
    assert documented is not None
    found = pnr.place_and_route(TINY, seeds=range(1, pnr.SEEDS + 1))
    clocks = [one.mhz for one in found]
    assert median(clocks) >= 0.95 * float(documented[1]), clocks
