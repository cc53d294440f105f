"""Changes of a spec that a remedy proposes, and the spec after them."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.fuse.rules.refusal import Lever
from opu_fuse.hw.spec.chain import PRE_KINDS
from opu_fuse.hw.spec.check_graph import OPERAND_KINDS
from opu_fuse.hw.spec.hw_spec import Buffer, HwSpec, Module
from opu_fuse.hw.spec.load_spec import spec_of_tree
from opu_fuse.hw.spec.proposals import PROPOSED
from opu_fuse.quant import Domain
from opu_fuse.units.base import Access, ModuleKind


class NewModule(Struct, frozen=True, kw_only=True):
    """A module that a remedy adds.

    op: operator to map to it, "" for none; like: existing module that it duplicates, None for a new
    kind; feeds: its successors; at: its predecessor, "" where the remedy must find one; buffers:
    words and banks of the buffers that only this module needs.
    """

    kind: ModuleKind
    domain: Domain = Domain.ACT
    operand: Access | None = None
    op: str = ""
    like: Module | None = None
    feeds: tuple[str, ...] = ()
    at: str = ""
    buffers: tuple[tuple[str, Buffer], ...] = ()

    def __str__(self) -> str:
        keys = {"domain": self.domain, "operand": self.operand, "exit": "true"}
        key_list = ", ".join(f"{key}: {value}" for key, value in keys.items() if value)
        what = f"a module of kind {self.kind} (`{key_list}`)"
        if self.like is not None:
            what = f"a second module of kind {self.kind}"
        position = f" after {self.at}" if self.at else ""
        if self.like is None and self.feeds:
            position += f" and before {', '.join(self.feeds)}"
        more = "".join(
            f", `buffers.{name}` of {buffer.words} words and {buffer.banks} banks"
            for name, buffer in self.buffers
        )
        mapped = f" and map {self.op} to it in `dataflow.operators`" if self.op else ""
        return f"{what}{position} to `dataflow.modules` and `dataflow.edges`{more}{mapped}"

    @property
    def name(self) -> str:
        """The module's name in the changed spec."""
        return f"new_{self.kind}"

    @property
    def module(self) -> Module:
        """The module's entry in the changed spec."""
        if self.like is not None:
            return self.like
        return Module(
            kind=self.kind,
            domain_in=self.domain,
            domain_out=self.domain,
            operand=self.operand,
            exit=True,
        )


def forms(hw: HwSpec, new: NewModule, predecessors: Sequence[str]) -> Iterator[NewModule]:
    """Every form that a new module could have, with the buffers that the machine lacks.

    predecessors: the possible ones. Kinds that may precede the array are also tried right after the
    root of the data flow.
    """
    edges = hw.dataflow.edges.get(hw.dataflow.root, ())
    for operand in OPERAND_KINDS.get(new.kind, (None,)):
        formed = replace(new, operand=operand)
        buffers = _missing(hw, "table") if new.kind is ModuleKind.TABLE else ()
        yield from (replace(formed, at=at, buffers=buffers) for at in predecessors)
        if new.kind in PRE_KINDS and new.domain is Domain.ACT:
            buffers = _missing(hw, "pre")
            yield replace(formed, at=hw.dataflow.root, feeds=edges, buffers=buffers)


def _missing(hw: HwSpec, name: str) -> tuple[tuple[str, Buffer], ...]:
    return () if getattr(hw.buffers, name) is not None else ((name, PROPOSED[name](hw)),)


def changed_spec(hw: HwSpec, lever: Lever) -> HwSpec:
    """The spec after the changes of a remedy, for partitioning only (`build: false`).

    A new module must have a predecessor (`NewModule.at`).
    """
    tree: dict[str, Any] = hw.to_tree() | {"build": False}
    for key, value in lever.spec:
        if value:
            *folders, last_key = key.split(".")
            subtree = tree
            for folder in folders:
                subtree = subtree.setdefault(folder, {})
            subtree[last_key] = yaml.safe_load(value)
    new = lever.added
    if isinstance(new, NewModule):
        flow = tree["dataflow"]
        flow["modules"][new.name] = dataclasses.asdict(new.module)
        flow["edges"][new.at] = [*flow["edges"].get(new.at, ()), new.name]
        flow["edges"][new.name] = list(new.feeds)
        if new.op:
            kinds = flow["operators"].get(new.op, ())
            flow["operators"][new.op] = [*dict.fromkeys((*kinds, str(new.kind)))]
        tree["buffers"] |= {name: dataclasses.asdict(buffer) for name, buffer in new.buffers}
    return spec_of_tree(tree)
