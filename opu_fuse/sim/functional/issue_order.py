"""In which order instructions run: that of the program, or any that the counters allow."""

from collections import Counter, deque
from collections.abc import Callable, Sequence

import numpy as np

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import SYNC_ENGINES, Engine
from opu_fuse.sim.machine_stop import stop_error

Execute = Callable[[int, Instruction], None]
Tokens = Counter[tuple[Engine, Engine]]


def in_order(program: Sequence[Instruction], execute: Execute) -> None:
    """Execute in program order. RunError when a wait finds no token signalled before it."""
    tokens: Tokens = Counter()
    for number, instruction in enumerate(program):
        me = instruction.engine
        for other in instruction.waits:
            if not tokens[other, me]:
                what = f"waits for {other.name.lower()}, which has not signalled before it"
                raise stop_error(instruction, number, what)
            tokens[other, me] -= 1
        execute(number, instruction)
        tokens.update((me, other) for other in instruction.signals)


def shuffled(
    program: Sequence[Instruction], execute: Execute, *, seed: int, counter_limit: int
) -> None:
    """Execute in a random order among those that the counters allow.

    Every engine takes its own instructions in order; among the engines that are ready, a seeded
    generator chooses. A full counter (counter_limit tokens) holds the retirement. Raises RunError
    when no engine is ready, naming what each waits for.
    """
    rng = np.random.default_rng(seed)
    tokens: Tokens = Counter()
    queues = {e: deque[tuple[int, Instruction]]() for e in SYNC_ENGINES}
    last: list[tuple[int, Instruction]] = []
    for number, instruction in enumerate(program):
        if instruction.engine in queues:
            queues[instruction.engine].append((number, instruction))
        elif instruction.opcode == "end":
            last.append((number, instruction))
        else:
            execute(number, instruction)
    unretired: set[Engine] = set()
    while any(queues.values()):
        ready = [
            e
            for e in SYNC_ENGINES
            if queues[e] and _ready(e, queues[e][0][1], tokens, unretired, counter_limit)
        ]
        if not ready:
            raise _deadlock(queues, unretired)
        engine = ready[int(rng.integers(len(ready)))]
        number, instruction = queues[engine][0]
        if engine in unretired:
            unretired.remove(engine)
            tokens.update((engine, other) for other in instruction.signals)
            queues[engine].popleft()
        else:
            tokens.subtract((other, engine) for other in instruction.waits)
            execute(number, instruction)
            unretired.add(engine)
    for number, instruction in last:
        execute(number, instruction)


def _ready(
    engine: Engine, head: Instruction, tokens: Tokens, unretired: set[Engine], limit: int
) -> bool:
    if engine in unretired:
        return all(tokens[engine, other] < limit for other in head.signals)
    return all(tokens[other, engine] > 0 for other in head.waits)


def _deadlock(
    queues: dict[Engine, deque[tuple[int, Instruction]]], unretired: set[Engine]
) -> RunError:
    held = []
    for engine, queue in queues.items():
        if not queue:
            continue
        number, head = queue[0]
        names = head.signals if engine in unretired else head.waits
        verb = "signal to" if engine in unretired else "token of"
        others = ", ".join(e.name.lower() for e in names)
        held.append(f"{engine.name.lower()} at instruction {number} ({verb} {others})")
    return RunError(
        where="program",
        what="deadlock: " + "; ".join(held),
        help="this is a bug of the compiler that wrote the program; compile again with a newer one",
    )
