"""When a producer may be fused into a consumer: one named predicate per rule.

A predicate returns None where its rule holds, else the words for its message, which is the first
line of its docstring. Later rules may rely on earlier ones.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from opu_fuse.host.build.linalg.pair import (
    Pair,
    fused_result,
    preserved_results,
    producer_loops,
    replaced_inputs,
    unbounded_loops,
)
from opu_fuse.host.kernel_check import whole_result

Words = Mapping[str, object]
Rule = Callable[[Pair], Words | None]


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a pair is not fused: the rule's name (`control`: a control function), and a sentence."""

    rule: str
    text: str


def refusal(pair: Pair) -> Refusal | None:
    """The first rule that forbids fusing a pair, or None: it may be fused."""
    for rule in FUSION_RULES:
        words = rule(pair)
        if words is not None:
            return Refusal(rule=rule.__name__, text=MESSAGES[rule.__name__].format(**words))
    return None


def all_parallel_producer(pair: Pair) -> Words | None:
    """{producer} gathers along loop d{loop} ({kind}); a fused producer has parallel loops only"""
    gathering = pair.producer.gathering
    if not gathering:
        return None
    kind = pair.producer.loops[gathering[0]].kind
    return {"producer": pair.producer.name, "loop": gathering[0], "kind": kind}


def value_semantics(pair: Pair) -> Words | None:
    """{value} is written by {consumer} and used by {producer}: they share memory, not a value"""
    p, c = pair.producer, pair.consumer
    used = {x.value for x in (*p.inputs, *p.results)} | {r.init for r in p.results}
    for r in c.results:
        if r.value in used:
            return {"value": r.value, "consumer": c.name, "producer": p.name}
    return None


def operand_is_input(pair: Pair) -> Words | None:
    """{value} is what a result of {consumer} starts from; only inputs are fused"""
    if pair.operand < len(pair.consumer.inputs):
        return None
    return {"value": pair.value, "consumer": pair.consumer.name}


def operand_is_produced(pair: Pair) -> Words | None:
    """{producer} does not make {value} as {consumer} reads it: {dtype}{shape}"""
    x, r = pair.consumer.inputs[pair.operand], pair.result
    if r is not None and (r.shape, r.dtype) == (x.shape, x.dtype):
        return None
    words = {"producer": pair.producer.name, "consumer": pair.consumer.name}
    return {**words, "value": x.value, "dtype": x.dtype, "shape": list(x.shape)}


def index_per_producer_loop(pair: Pair) -> Words | None:
    """{consumer} reads {value} with {count} indices, {producer} has {wanted} loops"""
    count, wanted = len(pair.operand_map.results), len(pair.producer.loops)
    if count == wanted:
        return None
    words = {"consumer": pair.consumer.name, "producer": pair.producer.name}
    return {**words, "value": pair.value, "count": count, "wanted": wanted}


def result_map_is_permutation(pair: Pair) -> Words | None:
    """{producer} writes {value} by {map}, which is no permutation and has no inverse"""
    assert pair.result is not None
    if pair.result.map.is_permutation:
        return None
    return {"producer": pair.producer.name, "value": pair.value, "map": pair.result.map}


def loops_keep_bounds(pair: Pair) -> Words | None:
    """{consumer} gathers, and without {value} no operand would bound loop d{loop}"""
    if not pair.consumer.gathering:
        return None
    lost = unbounded_loops(pair)
    words = {"consumer": pair.consumer.name, "value": pair.value}
    return {**words, "loop": lost[0]} if lost else None


def preserved_results_are_whole(pair: Pair) -> Words | None:
    """{value} is needed outside too, but {consumer} computes it at {map}: not all of it, once"""
    into = producer_loops(pair)
    for k in preserved_results(pair):
        result = fused_result(pair.producer.results[k], into)
        if not whole_result(pair.consumer.extents, result):
            return {"value": result.value, "consumer": pair.consumer.name, "map": result.map}
    return None


def preserved_results_are_not_read(pair: Pair) -> Words | None:
    """{value} must still be written by {producer}, and {consumer} also reads it in another order"""
    gone = replaced_inputs(pair)
    read = {x.value for n, x in enumerate(pair.consumer.inputs) if n not in gone}
    read |= {r.init for r in pair.consumer.results if r.init is not None}
    preserved = preserved_results(pair)
    own = any(pair.producer.reads_result(k) for k in preserved)  # then it cannot be split either
    for k, r in enumerate(pair.producer.results):
        if r.value in read and (own or k in preserved):
            words = {"producer": pair.producer.name, "consumer": pair.consumer.name}
            return {**words, "value": r.value}
    return None


FUSION_RULES: tuple[Rule, ...] = (
    all_parallel_producer,
    value_semantics,
    operand_is_input,
    operand_is_produced,
    index_per_producer_loop,
    result_map_is_permutation,
    loops_keep_bounds,
    preserved_results_are_whole,
    preserved_results_are_not_read,
)
"""In the order of the reference: producer, operand, maps, bounds; then what preserving asks."""

MESSAGES: Mapping[str, str] = {
    rule.__name__: (rule.__doc__ or "").partition("\n")[0] for rule in FUSION_RULES
}
