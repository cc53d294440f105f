"""Averages over counts that are no powers of two: how often they differ from ONNX Runtime's.

    python benchmarks/averages.py [--only COUNT ...]

ONNX Runtime divides the sum by the count and rounds, halves to even. The machine multiplies by the
nearest 16-bit number over a power of two (`average_bits`), so a half falls where the number's error
points. For every count and ratio of the scales (operand to result), of all sums whose result is
not cut off, each counted once:

    today     differ from ONNX Runtime's result
    halves    are halves: the others differ because the multiplier is too coarse
    24 bits   differ with a multiplier of 24 bits
    cut       differ if the product is first rounded to 2^-(2 + bits of the count) of a step
"""

import argparse
import sys

import numpy as np

from opu_fuse.fixedpoint import average, clamp8, multiplier, rne_shift

COUNTS = (6, 9, 12, 25, 49, 100, 196, 400, 784, 3136, 9216)
RATIOS = (1, 2, 4, 8)
BITS = 16


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", type=int, metavar="COUNT", default=COUNTS)
    args = parser.parse_args()
    print("| count | ratio | today | halves | 24 bits | cut |\n|---|---|---|---|---|---|")
    for count in args.only:
        for ratio in RATIOS:
            cells = (f"{100 * share:.3f} %" for share in shares(count, ratio))
            print(f"| {count} | {ratio} | {' | '.join(cells)} |")
    return 0


def shares(count: int, ratio: int) -> tuple[float, float, float, float]:
    """The four columns."""
    reach = 127 * count // ratio
    totals = np.arange(-reach, reach + 1)
    theirs = clamp8(np.rint((totals.astype(np.float32) / np.float32(count)) * ratio))
    halves = (2 * ratio * totals) % count == 0
    halves &= (2 * ratio * totals // count) % 2 != 0
    today = _differ(totals, theirs, ratio / count, BITS)
    wide = _differ(totals, theirs, ratio / count, 24)
    m = multiplier(ratio / count, BITS)
    grain = m.shift - int(np.ceil(np.log2(count))) - 2
    product = totals.astype(np.int64) * m.mult
    rounded = (product + (1 << max(grain, 1) >> 1)) >> max(grain, 0) << max(grain, 0)
    cut = float(np.mean(clamp8(rne_shift(rounded, m.shift)) != theirs))
    return today, float(np.mean(halves)), wide, cut


def _differ(totals: np.ndarray, theirs: np.ndarray, ratio: float, bits: int) -> float:
    m = multiplier(ratio, bits)
    return float(np.mean(average(totals, mult=m.mult, shift=m.shift, y_zero=0) != theirs))


if __name__ == "__main__":
    sys.exit(main())
