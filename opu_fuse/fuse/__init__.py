"""Which operators share a pass through the machine, and why the others do not.

Read in this order; a file needs only those before it.

1. What comes out: `refusal` (a rule that does not hold, as data), `search` (what a searching
   strategy gained), `partition`, `names` (of the strategies).
2. What rules are asked about: `modules` (what can follow what in the pipeline), `scope` (one graph
   on one machine).
3. The rules: `operator_rules`, `legality`, `module_rules`; `ways` finds the nearest module.
4. The strategies: `growth` (a group while it grows), `grouping` (what a strategy hands over),
   `matched` with `none`, `greedy`; `companions` and `plans` (groups as the machine would run them),
   `chains`, `refine`, `optimal_reasons`, `optimal`; `patterns`, `postdom`, `fuseops`, `dominator`.
5. Around them: `order` in which groups run, `boundaries` (a reason for every open edge), `verify`
   (the one verifier), `strategies` (all of this behind one function), `copies` (a partition
   carried over to a graph with copies).
6. What people see: `story`, `explain`, `to_json`; `rulebook` and `operators` make the page of all
   rules; `borders` and `outline` write groups as ONNX functions.
"""
