"""Every rule of the fuser in one table, in the order in which they are asked.

The texts are in the predicates' docstrings; this table adds what happens when a rule is broken.
"""

from msgspec import Struct

from opu_fuse.fuse import copy_groups
from opu_fuse.fuse import verify as verifier
from opu_fuse.fuse.explain import boundaries, search_trace
from opu_fuse.fuse.explain import optimal_reasons as optimal
from opu_fuse.fuse.rules import legality, module_rules, operator_rules
from opu_fuse.fuse.rules.refusal import Rule
from opu_fuse.fuse.strategies import dominator, greedy, matched


class Section(Struct, frozen=True, kw_only=True):
    """Rules about one thing. otherwise: what happens where one of them does not hold."""

    about: str
    otherwise: str
    rules: tuple[Rule, ...]


RULEBOOK = (
    Section(
        about="an operator",
        otherwise="it runs on the host",
        rules=operator_rules.OPERATOR_RULES,
    ),
    Section(
        about="an operator on a module",
        otherwise="the next module is tried, then a group of its own, then the host",
        rules=module_rules.MODULE_RULES,
    ),
    Section(
        about="a view (reshape) after a group",
        otherwise="the host makes the view",
        rules=legality.VIEW_RULES,
    ),
    Section(
        about="the value between two operators",
        otherwise="the group ends with it, the reader begins another one",
        rules=legality.EDGE_RULES,
    ),
    Section(
        about="the position in the group",
        otherwise="a group of its own is tried, then the host",
        rules=legality.GROUP_RULES,
    ),
    Section(
        about="an edge that no rule cuts",
        otherwise="the strategy leaves it open",
        rules=(
            search_trace.model_input,
            boundaries.host_operand,
            boundaries.host_operator,
            boundaries.joined_other,
            boundaries.interior_value,
            boundaries.one_operator,
            boundaries.search_order,
            optimal.costs_more,
            optimal.continues_target,
            dominator.other_function,
            copy_groups.copied,
        ),
    ),
    Section(
        about="an operator that a strategy leaves to the host",
        otherwise="the host runs it",
        rules=(matched.owner_on_host, greedy.unreachable, optimal.fits_no_tile),
    ),
    Section(
        about="a whole partition",
        otherwise="`partition` shows it as illegal, `compile` refuses it",
        rules=(
            verifier.placed_once,
            verifier.reads_tail,
            verifier.interior_reader,
            verifier.one_result,
            verifier.owned_bias_stays,
            verifier.acyclic,
        ),
    ),
)
