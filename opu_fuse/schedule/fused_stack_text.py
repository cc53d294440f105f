"""Units of several groups as text, without the imports of explanations."""

from collections.abc import Iterator

from opu_fuse.number_text import counted
from opu_fuse.schedule.plan import Plan
from opu_fuse.schedule.tile_choice import BatchBlock, StackGroups, StackTrial


def unit_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for every unit of several groups of the program."""
    names = {group: parts[0].layer.name for group, parts in plan.layers.items()}
    for interleaved, group in plan.partner_of.items():
        pair = f"{names[interleaved]}: its tiles alternate with those of {names[group]}"
        yield f"co-scheduled: {pair}"
    for groups in plan.head_groups:
        count = plan.fused_heads[groups[0]]
        heads = f"{counted(count, 'head')}, {names[groups[0]]} to {names[groups[2 * count - 1]]}"
        yield f"fused heads: the probabilities of {heads}, stay on chip"
    for first, norm in plan.two_results.items():
        yield f"two results: the passes of {names[first]} also compute {names[norm]}"
    yield from stack_lines(plan)


def stack_lines(plan: Plan) -> Iterator[str]:
    """Yield a line for every fused stack and for every batch block of the program."""
    for stack in plan.fused_stacks:
        yield f"fused stack: {group_names(plan, stack)}{comparison(plan, stack)}"
    yield from (batch_block_text(plan, block) for block in plan.batch_blocks)


def batch_block_text(plan: Plan, block: BatchBlock) -> str:
    """Describe a batch block: its images and its groups."""
    return f"{block.images} of {plan.layout.images} images at a time: {group_names(plan, block)}"


def group_names(plan: Plan, unit: StackGroups | BatchBlock) -> str:
    """List the names of the groups that run as one unit."""
    return ", ".join(plan.layers[group][0].layer.name for group in unit.groups)


def comparison(plan: Plan, stack: StackGroups) -> str:
    """Compare a fused stack with its unfused groups, unless the user demanded it."""
    trial = next((t for t in plan.stack_trials if t.fused == stack), None)
    return f": {trial_text(trial)}" if trial else " (as asked for)"


def trial_text(trial: StackTrial) -> str:
    """Cycles and bytes of a fused stack and of its unfused groups."""
    return (
        f"{trial.cycles:,} cycles and {trial.bytes:,} bytes, one after the other "
        f"{trial.cycles_alone:,} and {trial.bytes_alone:,}"
    )
