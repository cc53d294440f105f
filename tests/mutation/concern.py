"""Which tests concern a file, and which of its mutants do the same as the file."""

from pathlib import Path

import yaml

LAYERS = [
    "tests/networks/test_lanes.py",
    "tests/networks/test_graph_machines.py",
    "tests/schedule/test_light_layers.py",
    "tests/schedule/test_single_layer.py",
]
"""Bits of layers and of small networks, in a quarter of a minute."""

KEEPING = "tests/schedule/test_residency.py::"
CASCADES = "tests/schedule/test_fused_stacks.py::"
PLAN = "tests/schedule/test_plan.py::"
EXPLAIN = "tests/schedule/test_tile_trace.py::"
REGRESSIONS = "tests/regressions/test_regressions.py::"
COMPANIONS = "tests/schedule/test_coschedule.py::"
NETWORKS = [
    "tests/networks/test_transposed.py",
    "tests/networks/test_batch.py",
    COMPANIONS + "test_together_they_give_the_bits_that_they_give_alone",
    KEEPING + "test_a_chain_of_small_layers_loads_features_once",
    KEEPING + "test_rows_of_a_map_in_several_tiles_are_loaded_once_the_first_tile_s_first",
    CASCADES + "test_layers_together_have_the_same_bits_in_any_order",
]
"""Bits of what the scheduler has besides tiles, in as long: phases, images, companions, maps on
chip, cascades.
"""

CONCERN = {
    "opu_fuse/fixedpoint.py": ["tests/test_fixedpoint.py"],
    "opu_fuse/dfg/integer.py": ["tests/dfg/test_integer.py"],
    "opu_fuse/units/": ["tests/dfg/test_integer.py", "tests/sim/test_legal.py", *LAYERS],
    "opu_fuse/codegen/bundle.py": [
        "tests/codegen/test_bundle.py",
        "tests/networks/test_lanes.py",
        "tests/bundle/test_ranges.py",
        COMPANIONS + "test_a_pool_on_its_own_is_hidden_behind_a_convolution",
        KEEPING + "test_a_check_looks_at_maps_on_chip_and_counts_those_that_a_run_cannot_show",
        "tests/report/test_json.py",
        "tests/report/test_tables.py",
        "tests/sim/test_host_borders.py",
        "tests/networks/test_batch.py",
        "tests/regressions",
    ],
    "opu_fuse/codegen/": [
        "tests/codegen",
        "tests/schedule/test_lower_group.py",
        "tests/schedule/test_pre_chain.py",
        *LAYERS,
        REGRESSIONS + "test_a_case_found_by_fuzzing_is_right_in_every_tensor",
    ],
    "opu_fuse/schedule/dependencies.py": [
        "tests/schedule/test_tokens.py",
        "tests/schedule/test_dependencies.py",
    ],
    "opu_fuse/schedule/memory_plan.py": ["tests/schedule/test_memory_plan.py"],
    "opu_fuse/schedule/segment_order.py": ["tests/schedule/test_segment_order.py"],
    "opu_fuse/schedule/proofs.py": [
        "tests/schedule/test_proofs.py",
        "tests/schedule/test_tokens.py",
    ],
    "opu_fuse/schedule/registers.py": ["tests/schedule/test_registers.py"],
    "opu_fuse/schedule/fused_stacks.py": ["tests/schedule/test_fused_stacks.py"],
    "opu_fuse/schedule/emitted_units.py": [
        PLAN + "test_maps_inside_a_cascade_have_no_place_in_memory",
        "tests/schedule/test_fused_stacks.py",
        "tests/schedule/test_residency.py",
    ],
    "opu_fuse/schedule/emit_sink.py": [
        *LAYERS,
        "tests/networks/test_lanes.py",
        "tests/schedule/test_pre_chain.py",
        KEEPING + "test_what_a_small_bank_does_not_hold_takes_turns",
        KEEPING + "test_averages_of_fewer_values_at_the_border_go_to_their_places_on_chip",
        KEEPING + "test_tiles_that_end_within_a_row_go_to_their_places_on_chip",
        PLAN + "test_a_map_that_is_on_chip_only_is_not_loaded",
        *NETWORKS,
        CASCADES + "test_each_cascade_is_told_with_its_own_figures",
    ],
    "opu_fuse/tile_schedule/traversal.py": [
        "tests/schedule/test_fused_heads.py",
        COMPANIONS + "test_tiles_of_the_one_are_spread_evenly_between_those_of_the_other",
        CASCADES + "test_constants_of_a_cascade_are_loaded_once",
        *NETWORKS,
    ],
    "opu_fuse/tile_schedule/layer_schedule.py": [
        "tests/schedule/test_tile_schedule.py",
        *LAYERS,
        "tests/schedule/test_prefetch.py",
        "tests/schedule/test_pre_chain.py",
        KEEPING + "test_what_a_small_bank_does_not_hold_takes_turns",
        PLAN + "test_no_more_blocks_are_finished_at_once_than_the_bank_of_what_is_added_holds",
        PLAN + "test_constants_of_a_layer_are_loaded_once_for_all_its_tiles",
        *NETWORKS,
    ],
    "opu_fuse/schedule/store_registers.py": [
        "tests/schedule/test_single_layer.py",
        "tests/schedule/test_packed_layers.py",
        "tests/schedule/test_light_layers.py",
        "tests/networks/test_lanes.py",
        *NETWORKS,
    ],
    "opu_fuse/schedule/lower_group.py": [
        "tests/schedule/test_lower_group.py",
        "tests/networks/test_lanes.py",
        "tests/networks/test_graph_machines.py",
        "tests/schedule/test_pre_chain.py",
        "tests/networks/test_transposed.py",
        "tests/networks/test_rounded_anew.py",
        "tests/networks/test_functional.py::test_small_networks_on_the_small_machine",
    ],
    "opu_fuse/schedule/plan.py": [
        "tests/schedule/test_plan.py",
        COMPANIONS + "test_a_pool_on_its_own_is_hidden_behind_a_convolution",
        *NETWORKS,
        KEEPING + "test_what_only_the_next_layer_reads_is_not_stored",
        "tests/cli/test_print_after.py::test_a_stage_as_text",
        "tests/regressions",
    ],
    "opu_fuse/schedule/tensors.py": [
        "tests/schedule/test_plan.py",
        "tests/cli/test_print_after.py",
        "tests/networks/test_lanes.py",
        "tests/schedule/test_memory_plan.py",
        COMPANIONS + "test_together_they_give_the_bits_that_they_give_alone",
        "tests/regressions",
    ],
    "opu_fuse/schedule/insert_copies.py": [
        "tests/fuse/test_copy_groups.py",
        "tests/networks/test_lanes.py",
    ],
    "opu_fuse/schedule/fused_stack_choice.py": [
        "tests/schedule/test_fused_stack_choice.py",
        CASCADES + "test_where_memory_is_slow_they_are_chosen_and_predicted",
        CASCADES + "test_a_cascade_that_gains_nothing_is_not_taken",
        CASCADES + "test_what_cannot_be_computed_together",
        "tests/cli/test_explain.py",
        EXPLAIN + "test_a_layer_of_a_cascade_is_told_its_strips_and_one_outside_is_not",
    ],
    "opu_fuse/schedule/tile_choice.py": [
        "tests/schedule/test_lower_group.py",
        "tests/networks/test_lanes.py",
        "tests/schedule/test_tile_choice.py",
        "tests/schedule/test_structure.py::test_repeated_groups_are_looked_at_once",
        "tests/schedule/test_pre_chain.py",
        COMPANIONS + "test_a_pool_on_its_own_is_hidden_behind_a_convolution",
        COMPANIONS + "test_two_tiles_are_enough_for_something_to_come_between_them",
        "tests/fuse/test_copy_groups.py",
        "tests/networks/test_transposed.py",
        KEEPING + "test_rows_of_a_map_in_several_tiles_are_loaded_once_the_first_tile_s_first",
        REGRESSIONS + "test_a_case_found_by_fuzzing_is_right_in_every_tensor",
    ],
    "opu_fuse/schedule/tile_trace.py": [
        "tests/schedule/test_tile_trace.py",
        "tests/cli/test_print_after.py",
    ],
    "opu_fuse/schedule/plan_text.py": ["tests/cli/test_print_after.py"],
    "opu_fuse/schedule/fused_stack_text.py": [
        "tests/cli/test_explain.py",
        CASCADES + "test_each_cascade_is_told_with_its_own_figures",
    ],
    "opu_fuse/schedule/": ["tests/networks/test_lanes.py", *NETWORKS],
}
"""The first row that a file's path begins with."""

EQUIVALENT: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(
    Path(__file__).with_name("equivalent.yaml").read_text(encoding="utf-8")
)
"""File -> text of a line -> change -> why it cannot matter."""


def tests_of(file: str) -> list[str]:
    return next(tests for path, tests in CONCERN.items() if file.startswith(path))


def is_equivalent(file: str, text: str, change: str) -> bool:
    return change in EQUIVALENT.get(file, {}).get(text, {})
