"""Random networks: each compiled for some machines, run, and held against ONNX Runtime."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tests.fuzz import smaller_network
from tests.fuzz.judge_network import judge
from tests.fuzz.machines import machine
from tests.fuzz.network_case import NetworkCase, draw
from tests.fuzz.worker import SECONDS_PER_CASE

BUILDING = 600.0
"""Seconds that a case on RTL has: the first of a machine builds its simulator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """The kinds `networks`, where every one runs on RTL as well, `rtl`, and where every one arrives
    with pairs that a careless tool has placed, `careless`.
    """

    name: str = "networks"
    share: float = 0.4
    rtl: bool = False
    carelessly: bool = False

    def draw(self, seed: int) -> NetworkCase:
        return replace(draw(seed, carelessly=self.carelessly), rtl=self.rtl)

    def machines(self, case: NetworkCase) -> Sequence[str]:
        return case.machines

    def judge(self, case: NetworkCase, machine_name: str) -> str | None:
        return judge(case, machine(machine_name))

    def seconds(self, case: NetworkCase) -> float:
        return BUILDING if case.rtl else SECONDS_PER_CASE

    def smaller(self, case: NetworkCase, machine_name: str) -> Iterator[NetworkCase]:
        return smaller_network.smaller(case)

    def write(self, case: NetworkCase, folder: Path) -> None:
        (folder / "model.onnx").write_bytes(case.model)
        (folder / "graph.txt").write_text(case.text(), encoding="utf-8")
        np.savez(folder / "inputs.npz", allow_pickle=False, **case.inputs())


KIND = Networks()
RTL = Networks(name="rtl", share=0.012, rtl=True)
CARELESS = Networks(name="careless", share=0.2, carelessly=True)
