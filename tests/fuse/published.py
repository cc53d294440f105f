"""The published OPU algorithm, written down from its description alone: over a model's own nodes,
and the `dataflow` of a spec as its YAML says it. Shares no code with what it checks.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from onnx import ModelProto, NodeProto, numpy_helper

from tests.some import some

NAMES = {
    "Conv": "conv",
    "Gemm": "dense",
    "Add": "add",
    "Mul": "multiply",
    "Relu": "relu",
    "LeakyRelu": "leaky_relu",
    "MaxPool": "max_pool",
    "AveragePool": "avg_pool",
    "GlobalAveragePool": "avg_pool",
    "Pad": "pad",
    "Concat": "concat",
    "Resize": "upsample",
}
"""What the operator map calls them; others are in no map."""

HAVE_PARAMETERS = ("Pad", "Resize")
"""Only their first operand is data; the rest are attributes."""


@dataclass
class Item:
    """kind: call, var, const or tuple; succ: users, in post-DFS order."""

    kind: str
    name: str
    op: str = ""
    pred: list[int] = field(default_factory=list)
    succ: list[int] = field(default_factory=list)
    widens: bool = False
    bias: bool = False


class DataFlow:
    """The DFG in post-DFS order: operands of a call before it, in operand order."""

    def __init__(self, model: ModelProto) -> None:
        self.constants = {t.name: t for t in model.graph.initializer}
        self.makers = {y: node for node in model.graph.node for y in node.output}
        self.items: list[Item] = []
        self.index: dict[str, int] = {}
        for output in model.graph.output:
            self._visit(output.name)
        for i, item in enumerate(self.items):
            for p in dict.fromkeys(item.pred):
                self.items[p].succ.append(i)

    def _add(self, item: Item) -> int:
        self.items.append(item)
        return len(self.items) - 1

    def _visit(self, value: str) -> int:
        if value not in self.index:
            if value in self.makers:
                found = self._call(self.makers[value])
            else:
                found = self._add(Item("const" if value in self.constants else "var", value))
            self.index[value] = found
        return self.index[value]

    def _call(self, node: NodeProto) -> int:
        op = NAMES.get(node.op_type, f"unknown {node.op_type}")
        if op in ("conv", "dense"):
            operands = [self._visit(v) for v in node.input[:2]]
            anchor = self._add(Item("call", node.name, op, operands))
            if len(node.input) < 3:
                return anchor
            both = [anchor, self._visit(node.input[2])]
            return self._add(Item("call", f"{node.name}/bias", "add", both, bias=True))
        data = node.input[:1] if node.op_type in HAVE_PARAMETERS else node.input
        operands = [self._visit(v) for v in data]
        if op == "concat":
            operands = [self._add(Item("tuple", f"{node.name}/operands", pred=operands))]
        widens = False
        if op == "pad":
            amounts = numpy_helper.to_array(self.constants[node.input[1]])
            widens = bool(amounts[1] or amounts[5])
        return self._add(Item("call", node.name, op, operands, widens=widens))


class Published:
    """groups: members as {index: module or None}; unrunnable: calls that no module runs."""

    def __init__(self, model: ModelProto, flow: dict[str, Any]) -> None:
        self.items = DataFlow(model).items
        self.flow = flow
        self.last_match: str | None = None
        self.groups: list[dict[int, str | None]] = []
        self.grouped: set[int] = set()
        self.root: int | None = None
        self.closed: set[int] = set()
        self.unrunnable: list[int] = []
        self._partition()
        self._fix_up()

    def named(self) -> tuple[list[list[tuple[str, str | None]]], list[str]]:
        """Calls of each group with their modules, sorted; operators that no module runs."""
        calls = [
            sorted((self.items[i].name, m) for i, m in g.items() if self.items[i].kind == "call")
            for g in self.groups
        ]
        return sorted(filter(None, calls)), sorted(self.items[i].name for i in self.unrunnable)

    def _kinds(self, item: Item) -> list[str]:
        return self.flow["operators"].get(item.op, [])

    def _find_match(self, item: Item) -> bool:
        edges = self.flow["edges"]
        if self.last_match is None:
            queue, visited = deque([self.flow["root"]]), set()
        else:
            queue, visited = deque(edges.get(self.last_match, [])), {self.last_match}
        visited |= set(queue)
        while queue:
            module = queue.popleft()
            if self.flow["modules"][module]["kind"] in self._kinds(item):
                self.last_match = module
                return True
            for follower in edges.get(module, []):
                if follower not in visited:
                    visited.add(follower)
                    queue.append(follower)
        return False

    def _partition(self) -> None:
        visited: set[int] = set()
        stack = [0]
        while stack:
            i = stack.pop()
            if i in visited:
                continue
            visited.add(i)
            if self.items[i].kind == "call" and i not in self.grouped:
                self._place(i)
            stack += sorted(self.items[i].succ, reverse=True)

    def _place(self, i: int) -> None:
        item = self.items[i]
        if not self._kinds(item):  # virtual
            self._add_to_group(i, None)
            return
        if self._find_match(item):
            self._add_to_group(i, self.last_match)
            return
        self.last_match = None
        if not self._find_match(item):
            self.unrunnable.append(i)
            return
        if self.root is not None:
            self.closed.add(self.root)
        self.groups.append({})
        self._add_to_group(i, self.last_match)

    def _add_to_group(self, i: int, module: str | None) -> None:
        if not self.groups:
            self.groups.append({})
        self.groups[-1][i] = module
        self.grouped.add(i)
        self.root = i
        for operand in self.items[i].pred:
            self._collect_inputs(operand)

    def _collect_inputs(self, i: int) -> None:
        item = self.items[i]
        if i in self.closed or i in self.grouped or (item.kind == "call" and self._kinds(item)):
            return
        self.groups[-1][i] = None
        self.grouped.add(i)
        for operand in item.pred:
            self._collect_inputs(operand)

    def _fix_up(self) -> None:
        """add(pad(x), y) with a pad that widens channels: the pad goes into the add's group, and
        that is merged with the group of y.
        """
        for i, item in enumerate(self.items):
            mine = self._group(i)
            if item.op != "add" or item.bias or mine is None:
                continue
            pads = [p for p in item.pred if self.items[p].widens and self._group(p) is not None]
            others = [p for p in item.pred if p not in pads and self._group(p) is not None]
            if not pads or not others:
                continue
            pulled = self._group(pads[0])
            module = some(pulled).pop(pads[0])
            target = some(self._group(others[0]))
            mine[pads[0]] = module
            if target is not mine:
                target |= mine
                mine.clear()

    def _group(self, i: int) -> dict[int, str | None] | None:
        if self.items[i].kind != "call":
            return None
        return next((g for g in self.groups if i in g), None)
