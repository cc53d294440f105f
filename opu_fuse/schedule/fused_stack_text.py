"""Units of several groups as text, without the imports of explanations."""

from collections.abc import Iterator
from itertools import pairwise

from opu_fuse.number_text import counted
from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.segment_order import UnitGroups
from opu_fuse.schedule.tile_choice import StackTrial


def unit_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for every unit of several groups of the program, in execution order."""
    for unit in plan.units:
        names = [plan.layers[group][0].layer.name for group in unit.groups]
        if unit.interleaved:
            for before, name in pairwise(names):
                yield f"co-scheduled: {name}: its tiles alternate with those of {before}"
        elif unit.heads is not None:
            last, heads = names[2 * unit.heads.count - 1], counted(unit.heads.count, "head")
            yield f"fused heads: the probabilities of {heads}, {names[0]} to {last}, stay on chip"
        elif unit.two_results:
            yield f"two results: the passes of {names[0]} also compute {names[1]}"
        elif unit.stack is not None:
            yield f"fused stack: {group_names(plan, unit)}{comparison(plan, unit)}"
        elif unit.images:
            yield batch_block_text(plan, unit)


def batch_block_text(plan: Plan, block: UnitGroups) -> str:
    """Describe a batch block: its images and its groups."""
    return f"{block.images} of {plan.layout.images} images at a time: {group_names(plan, block)}"


def group_names(plan: Plan, unit: UnitGroups) -> str:
    """List the names of the groups that run as one unit."""
    return ", ".join(plan.layers[group][0].layer.name for group in unit.groups)


def comparison(plan: Plan, stack: UnitGroups) -> str:
    """Compare a fused stack with its unfused groups, unless the user demanded it."""
    trial = next((t for t in plan.stack_trials if t.fused == stack), None)
    return f": {trial_text(trial)}" if trial else " (as asked for)"


def trial_text(trial: StackTrial) -> str:
    """Cycles and bytes of a fused stack and of its unfused groups."""
    return (
        f"{trial.cycles:,} cycles and {trial.bytes:,} bytes, one after the other "
        f"{trial.cycles_alone:,} and {trial.bytes_alone:,}"
    )
