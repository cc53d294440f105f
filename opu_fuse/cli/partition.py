"""`opu-fuse partition`."""

from typing import Annotated

import typer

from opu_fuse.cli.arguments import (
    AsJson,
    Budget,
    Dims,
    Hw,
    Model,
    Shapes,
    Strategy,
    dims_of,
    shapes_of,
)
from opu_fuse.cli.console import print_json, print_lines, print_plain
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY

EVERYTHING = "*"
"""Value of a bare `--explain`."""


def partition(
    model: Model,
    hw: Hw,
    strategy: Strategy = DEFAULT_STRATEGY,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="[NODE]",
            help="print the reason at every group boundary; with NODE, everything about that "
            "operator",
        ),
    ] = None,
    budget: Budget = 1.0,
    shape: Shapes = None,
    dim: Dims = None,
    as_json: AsJson = False,
) -> None:
    """Show which operators fuse and which run on the host, without compiling."""
    from opu_fuse.frontend.importing.dynamic_dims import Sizes
    from opu_fuse.fuse.explain.coverage import low_coverage
    from opu_fuse.fuse.explain.partition_json import partition_to_json
    from opu_fuse.fuse.explain.partition_text import explain as explanation
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.pipeline import partition_model
    from opu_fuse.process.garbage_collection import no_collection

    if as_json and explain is not None:
        raise typer.BadParameter("--json contains all reasons; leave --explain out")
    sizes = Sizes(shapes=shapes_of(shape), dims=dims_of(dim))
    spec = load_hw(hw)
    with no_collection():
        dfg, groups = partition_model(model, spec, strategy, budget=budget, sizes=sizes)
        if warning := low_coverage(dfg, spec, groups):
            print_plain(f"warning: {warning}")
        if as_json:
            print_json(partition_to_json(dfg, spec, groups))
            return
        node, reasons = None if explain == EVERYTHING else explain, explain is not None
        print_lines(explanation(dfg, spec, groups, node, reasons=reasons))


def with_optional_value(arguments: list[str]) -> list[str]:
    """The command line with a value for a bare `--explain`: typer's options always take one."""
    results = []
    for i, argument in enumerate(arguments):
        following = arguments[i + 1] if i + 1 < len(arguments) else "-"
        bare = argument == "--explain" and following.startswith("-")
        results.append(f"--explain={EVERYTHING}" if bare else argument)
    return results
