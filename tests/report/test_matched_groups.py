"""The comparison of programs puts groups side by side that do the same work."""

from opu_fuse.report.page.tables import differences_table, matched_groups


def program(machine, *groups):
    """groups: cycles and operators as `name` or `name:conv`."""
    operators = [
        {"group": index, "name": text.partition(":")[0], "op": text.partition(":")[2] or "relu"}
        for index, (_, *texts) in enumerate(groups)
        for text in texts
    ]
    tree = [
        {"index": index, "name": texts[0].partition(":")[0], "cycles": cycles}
        for index, (cycles, *texts) in enumerate(groups)
    ]
    return {"machine": machine, "operators": operators, "groups": tree}


ONE = program("a", (100, "enc:conv", "enc.relu"), (70, "dec:conv", "dec.relu"))
OTHER = program("b", (90, "enc:conv", "enc.relu"), (60, "cat", "dec:conv", "dec.relu"), (5, "pool"))


def test_a_convolution_is_the_same_whatever_its_group_begins_with():
    assert matched_groups([ONE, OTHER]) == [
        ("enc", [100, 90]),
        ("dec + cat", [70, 60]),
        ("pool", [None, 5]),
    ]


def test_groups_without_a_convolution_count_for_the_group_that_has_their_operators():
    apart = program("c", (50, "dec:conv"), (9, "dec.relu"))
    assert matched_groups([ONE, apart])[1] == ("dec + dec.relu", [70, 59])


def test_differences_are_between_programs_that_have_the_group():
    text = differences_table(
        [program("a", (50, "x:conv"), (900, "y")), program("b", (40, "x:conv"))]
    )
    rows = text.split("<tr>")[2:]
    assert ["x" in row.split("</td>")[0] for row in rows] == [True, False]
    assert ">10<" in rows[0]
