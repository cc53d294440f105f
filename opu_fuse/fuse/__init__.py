"""Which operators share a pass through the machine, and why the others do not.

Read in this order; a file needs only those before it.

1. The result: `rules/refusal` (a broken rule as data), `strategies/search_report` (gain of a
   searching strategy), `partition`, `strategies/strategy_names`.
2. The subject of rules: `matching/modules` (successors in the pipeline), `matching/context` (one
   graph on one machine).
3. The rules: `rules/operator_rules`, `rules/legality`, `rules/module_rules`; `explain/diagnose`
   finds the nearest module.
4. The strategies: `matching/partial_group` (a group under construction), `strategies/grouping`
   (result of a strategy), `matched` with `none`, `greedy`; `coschedule` and `partition_cost` (the
   cost of a whole partition), `matching/enumerate_groups`, `local_search`,
   `explain/optimal_reasons`, `optimal`; `pattern_kinds`, `postdom`, `fuseops`, `dominator`.
5. Around them: `group_order` (execution order), `explain/boundaries` (a reason for every edge that
   is not fused), `verify` (the verifier), `strategies/registry` (the function that runs it all),
   `copy_groups` (a partition mapped to a graph with copies).
6. User output: `explain/search_trace`, `explain/partition_text`, `explain/partition_json`;
   `machine_operators` (what a machine runs, within which limits); `explain/rulebook` and
   `rules_page` generate the page of all rules; `model_cuts` and `outline` write groups as ONNX
   functions.
"""
