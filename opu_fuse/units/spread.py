"""The register `spread` of post: words of several pixels whose results go to words of their own."""


def spread_pixels(spread: int) -> tuple[int, int]:
    """Pixels of a word of partial sums (1: one, as without `spread`), and the slot that second
    operands have in their words.

    The highest bit of the register is the number of pixels, the bits below are the slot.
    """
    pixels = 1 << max(spread.bit_length() - 1, 0)
    return pixels, spread - pixels if spread else 0
