"""Whether the host segments of a bundle can run: members sound, values computed before use."""

from collections import Counter
from collections.abc import Iterator

from opu_fuse.bundle.manifest import damaged
from opu_fuse.bundle.program import KERNEL_SUFFIX, Bundle, HostPiece, HostSegment
from opu_fuse.errors import ProgramError, RunError
from opu_fuse.hw.spec.hw_spec import HwSpec

MODEL_SUFFIX = ".onnx"


def host_mistakes(bundle: Bundle, hw: HwSpec) -> Iterator[str]:  # noqa: ARG001  one signature for all checks
    """Every member belongs to one piece and has its inputs and outputs. Every piece reads values
    computed before it. Every result of a segment is computed.
    """
    hosts = [s for s in bundle.segments if isinstance(s, HostSegment)]
    uses = Counter(piece.member for s in hosts for piece in s.pieces)
    for name in sorted(uses.keys() - bundle.hosts.keys()):
        yield f"a host segment runs {name}, which is missing"
    for name in sorted(bundle.hosts):
        if uses[name] != 1 or not name.startswith("host/"):
            yield f"{name} belongs to {uses[name]} host pieces"
    for segment in hosts:
        known = {name for name, _ in segment.inputs}
        for piece in segment.pieces:
            yield from _order(piece, known)
            yield from _member(piece, bundle.hosts[piece.member])
            known.update(piece.outputs)
        for name in segment.results:
            if name not in known:
                yield f"a host segment promises {name}, which none of its pieces makes"


def _order(piece: HostPiece, known: set[str]) -> Iterator[str]:
    for name in piece.inputs:
        if name not in known:
            yield f"{piece.member} reads {name}, which nothing before it makes"
    for name in piece.outputs:
        if name in known:
            yield f"{piece.member} makes {name} again"


def _member(piece: HostPiece, data: bytes) -> Iterator[str]:
    try:
        reads, writes = _interface(piece.member, data)
    except ProgramError as error:
        yield f"{piece.member}: {error.what}"
        return
    if reads != set(piece.inputs) or writes != set(piece.outputs):
        yield f"{piece.member} reads and makes other values than its segment says"


def _interface(member: str, data: bytes) -> tuple[set[str], set[str]]:
    """Inputs and outputs that a member declares. Raises ProgramError when it is damaged."""
    if member.endswith(KERNEL_SUFFIX):
        from opu_fuse.bundle.kernel_json import kernel_from_json  # most programs have no kernels

        kernel = kernel_from_json(data, member)
        return set(kernel.reads), {r.value for r in kernel.op.results}
    if not member.endswith(MODEL_SUFFIX):
        raise damaged(member, "is neither a kernel nor a model")
    try:
        import onnx  # small installations have none, and programs without models need none
    except ModuleNotFoundError as error:
        what = "is a model for ONNX Runtime, which is not installed here"
        raise RunError(member, what, "pip install onnx onnxruntime") from error
    try:
        graph = onnx.load_from_string(data).graph
    except Exception as error:  # protobuf has its own error class, and is no dependency of ours
        raise damaged(member, "is no ONNX model") from error
    constant = {t.name for t in graph.initializer}
    return {i.name for i in graph.input} - constant, {o.name for o in graph.output}
