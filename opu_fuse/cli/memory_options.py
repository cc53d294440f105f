"""How `run` and `hw sim` take the memory of a machine."""

from pathlib import Path
from typing import Annotated, Any

import typer

from opu_fuse.cli.arguments import number
from opu_fuse.hw.spec.limits import MAX_LATENCY, MAX_SPEED, MIN_SPEED
from opu_fuse.sim.engine_names import MemoryName

Waves = Annotated[
    Path | None, typer.Option(metavar="F.fst", help="write waveforms, .fst or .vcd (rtl)")
]
Latency = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_LATENCY,
        metavar="N",
        help="memory latency in cycles; default: the machine's (cycle, rtl)",
    ),
]
BytesPerCycle = Annotated[
    float | None,
    typer.Option(
        min=MIN_SPEED,
        max=MAX_SPEED,
        callback=number,
        metavar="X",
        help="memory bandwidth; default: the machine's (cycle, rtl)",
    ),
]
Memory = Annotated[
    MemoryName | None,
    typer.Option(
        metavar="|".join(MemoryName),
        help="timing of a DDR memory, which has a bandwidth of its own (cycle, rtl)",
    ),
]


def memory_port(
    latency: int | None, bytes_per_cycle: float | None, memory: MemoryName | None
) -> dict[str, Any]:
    """What `MemoryOptions` and `RtlOptions` say of the memory."""
    if memory is not None and bytes_per_cycle is not None:
        raise typer.BadParameter(f"--bytes-per-cycle: {memory} has a bandwidth of its own")
    return {"latency": latency, "bytes_per_cycle": bytes_per_cycle, "dram": memory}
