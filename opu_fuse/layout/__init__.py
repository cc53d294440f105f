"""The data layout in DRAM, computed once from the groups; read by cost, tiling and codegen.

`shape`: sizes of a pass, in lanes. `batch`: sizes for a batch. `lanes`: channels of every value;
`lane_sharing`: values that share words; `zero_copy_joins`: maps that alias others; `pixel_packing`:
pixels per word; `data_layout`: all of it in one record.
"""
