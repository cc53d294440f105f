"""Where everything lies, decided once from the groups and read by cost, tiling, schedule and
codegen.

`shape`: sizes of a pass, in lanes. `lanes`: channels of every value; `sharing`: which of them share
words; `joins`: which maps lie inside others; `packing`: how many pixels share a word; `decided`:
all of it in one record.
"""
