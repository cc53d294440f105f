"""The algebra of affine maps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.affine import (
    AffineMap,
    affine,
    compose,
    covered_loops,
    identity_map,
    inverse_permutation,
    loops_map,
    parse_map,
    value_range,
)


@st.composite
def maps(draw, dims=None, results=None):
    dims = draw(st.integers(0, 4)) if dims is None else dims
    results = draw(st.integers(0, 4)) if results is None else results
    loops = st.integers(0, dims - 1) if dims else st.nothing()
    terms = st.lists(st.tuples(loops, st.integers(-3, 3)), max_size=3) if dims else st.just([])
    return AffineMap(
        dims=dims,
        results=tuple(affine(draw(terms), draw(st.integers(-5, 5))) for _ in range(results)),
    )


points = st.lists(st.integers(-9, 9), min_size=4, max_size=4)


@given(st.data(), points)
def test_composing_is_applying_one_after_the_other(data, point):
    inner = data.draw(maps(dims=4))
    outer = data.draw(maps(dims=len(inner.results)))
    assert compose(outer, inner).index(point) == outer.index(inner.index(point))


@given(maps())
def test_the_identity_changes_no_map(m):
    assert compose(m, identity_map(m.dims)) == m
    assert compose(identity_map(len(m.results)), m) == m


@given(st.permutations(range(4)), points)
def test_the_inverse_undoes_a_permutation(order, point):
    m = loops_map(4, order)
    assert compose(inverse_permutation(m), m) == identity_map(4)
    assert compose(m, inverse_permutation(m)) == identity_map(4)
    assert inverse_permutation(m).index(m.index(point)) == tuple(point)


@given(maps())
def test_text_stands_for_one_map(m):
    assert parse_map(str(m)) == m


def test_equal_maps_compare_equal_however_they_were_written():
    assert parse_map("(d0, d1) -> (d1 + d0 + d0 - 1)") == parse_map("(d0,d1)->(-1+2*d0+d1)")
    assert parse_map("(d0) -> (d0 - d0)") == parse_map("(d0) -> (0)")
    assert str(parse_map("(d0,d1)->(d1-3*d0-2,0,d1)")) == "(d0, d1) -> (-3*d0 + d1 - 2, 0, d1)"


@pytest.mark.parametrize(
    ("text", "permutation", "projected"),
    [
        ("(d0, d1) -> (d1, d0)", True, True),
        ("(d0, d1) -> (d1)", False, True),
        ("() -> ()", True, True),
        ("(d0, d1) -> (d0, d0)", False, False),
        ("(d0, d1) -> (d1, 0)", False, False),
        ("(d0, d1) -> (d1, 2*d0)", False, False),
        ("(d0, d1) -> (d1, d0 + 1)", False, False),
    ],
)
def test_permutations_and_projected_permutations(text, permutation, projected):
    m = parse_map(text)
    assert m.is_permutation == permutation
    assert m.is_projected_permutation == projected
    if not permutation:
        with pytest.raises(ValueError, match="is no permutation of its loops"):
            inverse_permutation(m)


def test_only_a_loop_by_itself_tells_its_extent():
    assert covered_loops([parse_map("(d0, d1, d2) -> (d0 + d1, 2*d2, d1)")]) == {1}


def test_the_range_of_an_index():
    (e,) = parse_map("(d0, d1) -> (2*d0 - d1 + 1)").results
    assert value_range(e, (3, 4)) == (-2, 5)


def test_maps_that_do_not_fit_are_not_composed():
    with pytest.raises(ValueError, match="1 results, 2 loops"):
        compose(identity_map(2), parse_map("(d0) -> (d0)"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(d0) -> (d1)", "there is no loop d1"),
        ("(d1) -> (d1)", "the loops are d0, d1, … in order"),
        ("(d0) -> d0", "is not of the form"),
        ("(d0) -> (d0 d0)", "cannot read 'd0'"),
        ("(d0) -> (d0*2)", r"cannot read '\*2'"),
        ("(d0) -> (2*3)", "cannot read"),
        ("(d0) -> (,d0)", "cannot read"),
        ("(d0) -> (d0 +)", r"cannot read '\+'"),
    ],
)
def test_texts_that_are_no_maps_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_map(text)
