"""Hypothesis strategy for random machines: the modules of a known one, wired and limited anew."""

import dataclasses

from hypothesis import strategies as st

from opu_fuse.hw.spec.hw_spec import HwSpec
from tests.fuse.reading import machine

BASES = ("opu-tiny", "opu-1024", "opu-classic")


@st.composite
def machines(draw: st.DrawFn) -> HwSpec:
    """Edges left out and added (circles included), uses, exits and bypasses changed. Such a machine
    may run nothing at all; no rule may take its sense for granted.
    """
    hw = machine(draw(st.sampled_from(BASES)))
    flow = hw.dataflow
    names = list(flow.modules)
    modules = {
        name: dataclasses.replace(
            module,
            uses=draw(st.sampled_from([module.uses, 1, 2])),
            exit=draw(st.sampled_from([module.exit, True, False])),
            bypass=draw(st.sampled_from([module.bypass, True, False])),
        )
        for name, module in flow.modules.items()
    }
    edges = {
        name: tuple(m for m in flow.edges.get(name, ()) if draw(st.integers(0, 9)) > 0)
        + tuple(draw(st.lists(st.sampled_from(names), max_size=1)))
        for name in names
    }
    edges = {name: tuple(dict.fromkeys(m for m in to if m != name)) for name, to in edges.items()}
    flow = dataclasses.replace(flow, modules=modules, edges=edges)
    return dataclasses.replace(hw, dataflow=flow)
