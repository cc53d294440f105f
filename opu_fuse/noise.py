"""Signal and noise of a network's integers, against the float model."""

import math
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from opu_fuse.bundle.accuracy import OutputLoss, TensorLoss, worth
from opu_fuse.dfg.graph import Dfg, Kind, Node
from opu_fuse.dfg.interpret import Values
from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Sample
from opu_fuse.frontend.quantization.float_reference import FloatModel

_CLAMPS = frozenset({"relu", "clip", "max_pool"})
"""Operators that clamp: values that int8 saturates give the same result, unless the clamp's bound
is inside the span of int8."""


class Measured:
    """Sums over samples.

    floating: the float form of what `dfg` was built from.
    host: calls that run on the host.
    tensors: measure every tensor, not the outputs alone.
    """

    def __init__(
        self, dfg: Dfg, floating: ir.Model, *, host: Collection[int] = (), tensors: bool = True
    ) -> None:
        rounded = [n for n in dfg.nodes if n.quant is not None and n.kind is not Kind.CONST]
        self._dfg, self._host = dfg, host
        looked_at = [n for n in rounded if not _is_clamped(dfg, n)] if tensors else []
        self._float = FloatModel(floating, [n.value for n in looked_at])
        self._nodes = [n for n in looked_at if n.value in self._float.names]
        self._sums = {n.value: _Noise() for n in self._nodes}
        self._own = {n.value: _Noise() for n in self._nodes}
        self._clipped = dict.fromkeys(self._sums, 0)
        self._outputs = {name: _Output() for name in self._float.outputs}

    def add(self, sample: Sample, integers: Values, label: np.ndarray | None = None) -> None:
        """One sample. integers: of all nodes; label: integers, see `loss.accuracy`.
        Raises ModelError where there is nothing to compare with.
        """
        exact = self._float.run(sample)
        if self._nodes:
            real = {n.value: _real(n, integers) for n in self._nodes}
            alone = self._float.from_operands(sample, real)
            for node in self._nodes:
                name = node.value
                self._sums[name].add(exact[name], real[name])
                self._own[name].add(alone[name], real[name])
                assert node.quant is not None
                self._clipped[name] += int(np.count_nonzero(node.quant.clips(exact[name])))
        ends = zip(self._dfg.outputs, self._dfg.exits, strict=True)
        for (index, border), (name, output) in zip(ends, self._outputs.items(), strict=True):
            got = _real(self._dfg[index], integers)
            if not np.isfinite(exact[name]).all():
                raise ModelError(
                    f"output {name!r}",
                    "the float model computes NaN or infinity for it",
                    "measure on inputs that the network is for (--data, or --calibration)",
                )
            if border is not None and border.turn is not None:
                got = border.turn.outside(got, exact[name].shape)
            output.add(exact[name], got, label)

    def tensors(self) -> tuple[TensorLoss, ...]:
        """The worst first."""
        noises = [self._tensor(node) for node in self._nodes]
        return tuple(sorted(noises, key=lambda t: worth(t.ratio)))

    def outputs(self) -> tuple[OutputLoss, ...]:
        """In the model's order."""
        return tuple(output.loss(name) for name, output in self._outputs.items())

    def _tensor(self, node: Node) -> TensorLoss:
        assert node.quant is not None
        maker = node
        while maker.op in _CLAMPS and _is_clamped(self._dfg, self._dfg[maker.operands[0]]):
            maker = self._dfg[maker.operands[0]]
        if maker.owner is not None:
            maker = self._dfg[maker.owner]
        elif maker.kind is Kind.TUPLE_GET:
            maker = self._dfg[maker.operands[0]]
        on_host = maker.index in self._host or maker.is_host
        location = "input" if node.kind is Kind.VAR else "host" if on_host else "machine"
        name = node.value
        return TensorLoss(
            name=name,
            layer=maker.name,
            op=maker.title or "input",
            place=location,
            ratio=self._sums[name].ratio,
            own=self._own[name].ratio,
            scale=node.quant.per_tensor,
            clipped=self._clipped[name] / self._sums[name].count,
        )


def _is_clamped(dfg: Dfg, node: Node) -> bool:
    """Only clamps read it: what int8 cuts off before is no loss."""
    readers = [dfg[u] for u in dfg.users[node.index]]
    cut = all(r.op in _CLAMPS and r.quant == node.quant for r in readers)
    return bool(readers) and cut and node.index not in dfg.outputs


class _Noise:
    """Powers of a tensor and of what is wrong with it."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0
        self.count = 0

    def add(self, exact: np.ndarray, got: np.ndarray) -> None:
        exact = exact.astype(np.float64)
        self.signal += float(np.square(exact).sum())
        self.noise += float(np.square(got.reshape(exact.shape) - exact).sum())
        self.count += exact.size

    @property
    def ratio(self) -> float | None:
        """Decibels; None without noise."""
        if self.noise == 0.0:
            return None
        return 10.0 * math.log10(max(self.signal / self.noise, 1e-20))


class _Output:
    """An output: its noise, and the indices of its largest channels."""

    def __init__(self) -> None:
        self.noise = _Noise()
        self.pixels = self.agree = 0
        self.labelled = self.right = self.float_right = 0

    def add(self, exact: np.ndarray, got: np.ndarray, label: np.ndarray | None) -> None:
        self.noise.add(exact, got)
        if exact.ndim < 2 or exact.shape[1] < 2:
            return
        wanted, chosen = (a.argmax(axis=1).reshape(-1) for a in (exact, got.reshape(exact.shape)))
        self.pixels += wanted.size
        self.agree += int(np.count_nonzero(wanted == chosen))
        if label is not None and label.size == wanted.size:
            self.labelled += wanted.size
            self.right += int(np.count_nonzero(chosen == label.reshape(-1)))
            self.float_right += int(np.count_nonzero(wanted == label.reshape(-1)))

    def loss(self, name: str) -> OutputLoss:
        return OutputLoss(
            name=name,
            ratio=self.noise.ratio,
            agreement=self.agree / self.pixels if self.pixels else None,
            right=self.right / self.labelled if self.labelled else None,
            float_right=self.float_right / self.labelled if self.labelled else None,
        )


def _real(node: Node, integers: Values) -> np.ndarray:
    """The real numbers that a node's result represents."""
    value = integers[node.index]
    return value if node.quant is None else node.quant.dequantize(value)
