"""Programs with one token missing."""

from msgspec.structs import replace


def without_tokens(program):
    """For every wait of a program: the program without it and without the signal it waits for."""
    for consumer, instruction in enumerate(program):
        for source in instruction.waits:
            number = sum(
                i.engine is instruction.engine and source in i.waits for i in program[:consumer]
            )
            producers = (
                i
                for i, p in enumerate(program)
                if p.engine is source and instruction.engine in p.signals
            )
            producer = [*producers][number]
            mutant = list(program)
            waits = tuple(w for w in instruction.waits if w is not source)
            mutant[consumer] = replace(instruction, waits=waits)
            signals = program[producer].signals
            signals = tuple(s for s in signals if s is not instruction.engine)
            mutant[producer] = replace(program[producer], signals=signals)
            yield mutant
