"""Softmax, LayerNorm and RMSNorm over the channels of a pixel, Softmax over quarters of a word and
GroupNorm over a map in Python's integers: the passes of the unit `norm` as docs/machine.md defines
them. It shares no code with `opu_fuse.normalisation`.

Rows are lists of int, the values of a pixel; a record is (gain, gain_shift, offset).
"""

from decimal import Decimal, localcontext
from itertools import pairwise

MAX, EXPSUM, SOFTMAX, MOMENTS, SQUARES, NORMALISE, MAP_MOMENTS, MAP_NORMALISE = range(8)
QUARTER_MAX, QUARTER_EXPSUM, QUARTER_SOFTMAX, QUARTER_EXPSUM_ODD = range(8, 12)
PLAIN = {QUARTER_MAX: MAX, QUARTER_EXPSUM: EXPSUM, QUARTER_EXPSUM_ODD: EXPSUM}
RESULTS = (SOFTMAX, NORMALISE, MAP_NORMALISE, QUARTER_SOFTMAX)
ENTRIES = 256


def rne(value, shift):
    """value / 2**shift, halves to even."""
    if shift <= 0:
        return value << -shift
    floor, rest = value >> shift, value & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    return floor + (rest > half or (rest == half and floor & 1))


def clamp8(value):
    return max(-128, min(127, value))


def _lines(function, octaves):
    """(start, fall) of 128 chords an octave, in units of 2**-4 of the result."""
    with localcontext() as context:
        context.prec = 50
        at = [(1 + Decimal(n) / 128) * 2**octave for octave in range(octaves) for n in range(128)]
        at.append(Decimal(2) ** octaves)
        exact = [function(x) * 2**21 for x in at]
        middles = [function((a + b) / 2) * 2**21 for a, b in pairwise(at)]
        sag = [(a + b) / 2 - m for (a, b), m in zip(pairwise(exact), middles, strict=True)]
        around = [(a + b) / 4 for a, b in zip([sag[0], *sag], [*sag, sag[-1]], strict=True)]
        joints = [int((x - s).to_integral_value()) for x, s in zip(exact, around, strict=True)]
    return [(a, a - b) for a, b in pairwise(joints)]


RECIPROCAL = _lines(lambda x: 1 / x, 1)
INVERSE_ROOT = _lines(lambda x: 1 / x.sqrt(), 2)


def _on_line(lines, line, along, bits):
    start, fall = lines[line]
    return min((start - (fall * along + (1 << bits - 1) >> bits) + 8) >> 4, (1 << 17) - 1)


def _behind_leading_one(x, bits):
    exponent = x.bit_length() - 1
    return exponent, ((x << bits) >> exponent) - (1 << bits)


def reciprocal(x):
    exponent, fraction = _behind_leading_one(x, 19)
    return _on_line(RECIPROCAL, fraction >> 12, fraction & 0xFFF, 12), exponent


def inverse_root(x):
    exponent, fraction = _behind_leading_one(x, 20)
    line = 128 * (exponent & 1) + (fraction >> 13)
    return _on_line(INVERSE_ROOT, line, fraction & 0x1FFF, 13), exponent >> 1


def quarters(row):
    size = len(row) // 4
    return [row[at : at + size] for at in range(0, 4 * size, size)]


class Norm:
    """The unit: maximum and (factor, offset, shift) of every pixel. table: the norm memory."""

    def __init__(self, table):
        self.table = table
        self.maximum, self.scaling = {}, {}

    def statistics(self, p, rows):
        """A pass that writes nothing. rows: of each pixel, all of its channels."""
        op, x_zero = p["norm_op"], p["norm_zero"]
        epsilon = p["norm_scale"] << max(p["norm_shift"], 0)
        if op == MAP_MOMENTS:
            rows = [[x for row in rows for x in row]]
        numbered = list(enumerate(rows))
        if op in PLAIN:
            numbered = [*enumerate(quarter for row in rows for quarter in quarters(row))]
            if op != QUARTER_MAX:
                numbered = numbered[op == QUARTER_EXPSUM_ODD :: 2]
            op = PLAIN[op]
        for pixel, row in numbered:
            n = len(row)
            if op == MAX:
                self.maximum[pixel] = max(row)
            elif op == EXPSUM:
                inverse, exponent = reciprocal(sum(self.terms(p, pixel, row)))
                factor = inverse * (p["norm_scale"] + 1) + (1 << 15) >> 16
                shift = min(exponent + 17 - p["norm_shift"], 63)
                self.scaling[pixel] = factor, 0, shift
            elif op in (MOMENTS, MAP_MOMENTS):
                total = sum(row)
                spread = n * sum(x * x for x in row) - total * total
                self.scaling[pixel] = self.deviation(n, total, (spread << 8) + epsilon)
            else:
                squares = sum((x - x_zero) ** 2 for x in row)
                self.scaling[pixel] = self.deviation(n, n * x_zero, (n * squares << 8) + epsilon)

    @staticmethod
    def deviation(n, total, variance):
        inverse, exponent = inverse_root(variance)
        narrow = max((n * inverse).bit_length() - 24, 0)
        shift = 17 + exponent - 4 - 15 - narrow
        return rne(n * inverse, narrow), rne(total * inverse, narrow), shift

    def terms(self, p, pixel, row):
        first, top = p["norm_table"], self.maximum[pixel]
        return [self.table[first + (top - x) % ENTRIES] for x in row]

    def results(self, p, pixel, row, records):
        """Of channels of one pixel, each with its record."""
        if p["norm_op"] == QUARTER_SOFTMAX:
            own = p | {"norm_op": SOFTMAX}
            parts = enumerate(quarters(row), 4 * pixel)
            return [y for number, part in parts for y in self.results(own, number, part, ())]
        factor, offset, shift = self.scaling[0 if p["norm_op"] == MAP_NORMALISE else pixel]
        if p["norm_op"] == SOFTMAX:
            terms = self.terms(p, pixel, row)
            return [clamp8(rne(t * factor, shift) + p["norm_zero"]) for t in terms]
        normal = [rne(x * factor - offset, shift) for x in row]
        return [
            clamp8(rne(u * gain + add, gain_shift & 63) + p["norm_zero"])
            for u, (gain, gain_shift, add) in zip(normal, records, strict=True)
        ]
