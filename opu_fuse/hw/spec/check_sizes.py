"""Sizes that the RTL can be built with: array, words, buses; the rest of `check_rtl.py`."""

from collections.abc import Callable, Iterator

from opu_fuse.hw.im2row_window import LEAST_WORD, supports_im2row
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.problem import Problem, unbuilt


def _modes(spec: HwSpec) -> Iterator[Problem]:
    """Modes share the adder trees: ic = multipliers × a power of two; both divide a word. One of
    them makes one pixel per cycle: most operators have no other.
    """
    word = spec.word_channels
    for index, mode in enumerate(spec.array.modes):
        trees, rest = divmod(mode.ic, spec.array.multipliers)
        if rest or trees & (trees - 1) or not trees:
            yield unbuilt(
                ("array", "modes", index, "ic"),
                f"mode {index}: ic {mode.ic} is not {spec.array.multipliers} "
                "multipliers times a power of two",
                "choose such an ic",
            )
        for name in ("ic", "oc"):
            value = getattr(mode, name)
            if value > word or word % value:
                yield unbuilt(
                    ("array", "modes", index, name),
                    f"mode {index}: {name} {value} does not divide a word of {word} channels",
                    "choose a divisor",
                )
        narrowest = min(m.oc for m in spec.array.modes)
        if mode.oc % narrowest:
            yield unbuilt(
                ("array", "modes", index, "oc"),
                f"mode {index}: oc {mode.oc} is no multiple of the smallest oc {narrowest}",
                "choose a multiple",
            )
        yield from _pixels(spec, index)
    if all(mode.px > 1 for mode in spec.array.modes):
        yield unbuilt(
            ("array", "modes"), "no mode of one pixel per cycle", "add one that has no `px`"
        )


def _pixels(spec: HwSpec, index: int) -> Iterator[Problem]:
    """Modes of several pixels pack their sums into one word and their segments into one."""
    mode, word = spec.array.modes[index], spec.word_channels
    path = ("array", "modes", index, "px")
    if mode.px == 1:
        return
    if mode.px not in (2, 4):
        yield unbuilt(path, f"mode {index}: {mode.px} pixels per cycle", "use 1, 2 or 4")
    elif word != spec.word_bytes:
        yield unbuilt(
            path,
            f"mode {index}: {mode.px} pixels per cycle in words of {word} channels",
            "use px: 1, or a power of two of channels",
        )
    elif mode.px * max(mode.ic, mode.oc) > word or spec.array.units % mode.px:
        yield unbuilt(
            path,
            f"mode {index}: {mode.px} pixels of {mode.ic} and {mode.oc} channels exceed a word "
            f"of {word}",
            "choose narrower modes",
        )


def _widths(spec: HwSpec) -> Iterator[Problem]:
    """Eights divide a word, bus, weight words and rows each other, depthwise parts and post lanes a
    word; partial sums take two equal memories.
    """
    width, bus = spec.buffers.weight.width, spec.dram.bus_bytes
    if spec.word_channels % 8:
        yield unbuilt(
            ("word_channels",),
            f"words of {spec.word_channels} channels, whose parameters fill no whole words",
            "use a multiple of 8",
        )
    if bus > spec.word_bytes:
        yield unbuilt(
            ("dram", "bus_bytes"),
            f"bus of {bus} bytes is wider than a feature word ({spec.word_bytes} bytes)",
            f"use at most {spec.word_bytes}",
        )
    if width & (width - 1) or width > 64 or width % bus:
        yield unbuilt(
            ("buffers", "weight", "width"),
            f"weight words of {width} bytes are no power-of-two multiple of the "
            f"{bus}-byte bus up to 64",
            f"use {bus}",
        )
    for row in sorted({spec.array.row_bytes} | {m.ic * m.oc for m in spec.array.modes}):
        if row % width:
            yield unbuilt(
                ("buffers", "weight", "width"),
                f"a weight row of {row} bytes is no whole number of {width}-byte words",
                "choose a divisor of the row",
            )
    if spec.buffers.psum.banks > 2 or spec.buffers.psum.words % 2:
        yield unbuilt(
            ("buffers", "psum"),
            f"partial sums of {spec.buffers.psum.words} words, banks: {spec.buffers.psum.banks}",
            "use an even number of words and 1 or 2 banks",
        )
    if spec.array.depthwise and spec.word_channels % min(spec.array.units, spec.word_channels):
        yield unbuilt(
            ("array", "depthwise"),
            f"depthwise with {spec.array.units} units and words of {spec.word_channels} channels",
            "choose units that divide a word",
        )
    yield from _window_cycles(spec)
    yield from _lanes(spec)
    yield from _table_terms(spec)


def _window_cycles(spec: HwSpec) -> Iterator[Problem]:
    """Windows of two cycles visit a whole word with one weight row, in pairs of units."""
    array, word = spec.array, spec.word_channels
    if array.window_cycles == 1:
        return
    path = ("array", "window_cycles")
    if not array.depthwise:
        yield unbuilt(
            path, "windows of two cycles on an array without windows", "add `depthwise: true`"
        )
    elif array.units < word:
        yield unbuilt(
            path,
            f"windows of two cycles with {array.units} units and words of {word} channels",
            f"use {word} units, or `window_cycles: 1`",
        )
    elif array.multipliers % 2 or array.row_bytes % (2 * word):
        yield unbuilt(
            path,
            f"windows of two cycles with {array.units} units x {array.multipliers}, which form "
            "no pairs",
            "use an even number of multipliers, or `window_cycles: 1`",
        )


def _lanes(spec: HwSpec) -> Iterator[Problem]:
    """The post chain has lanes for all channels of a word, a half, a quarter or an eighth of them,
    a multiple of 8; units with a second operand have such a share where the chain has whole words.
    """
    word, lanes = spec.word_channels, spec.post.lanes
    shares = [part for part in (word, word // 2, word // 4, word // 8) if part and part % 8 == 0]
    for field, count, fit, what in (
        ("lanes", lanes, shares, f"words of {word} channels"),
        (
            "residual_lanes",
            spec.residual_lanes,
            shares if lanes == word else [lanes],
            f"{lanes} post lanes",
        ),
    ):
        if shares and count not in fit:
            yield unbuilt(
                ("post", field),
                f"{count} {'post ' * (field == 'lanes')}{field.replace('_', ' ')} for {what}",
                f"use {' or '.join(map(str, fit))}",
            )


SUMMED_IN_SLICES = 32
"""Products of a unit that slices can sum by the time products in tables are ready."""


def _table_terms(spec: HwSpec) -> Iterator[Problem]:
    """Products of the array use tables in pairs, and at least two use slices."""
    products, tables = spec.array.multipliers, spec.array.table_terms
    most = products - 2 - products % 2
    least = max(products - SUMMED_IN_SLICES, 2)
    least += least % 2
    if tables and (tables % 2 or not least <= tables <= most):
        fit = f"an even number from {least} to {most}" if least < most else f"{most}"
        yield unbuilt(
            ("array", "table_terms"),
            f"{tables} of {products} products of a unit in tables",
            f"use {fit}" if least <= most else "leave table_terms out",
        )


def _image(spec: HwSpec) -> Iterator[Problem]:
    """Words of an image suit im2row."""
    channels = spec.word_channels
    if supports_im2row(spec) and (channels != spec.word_bytes or channels < LEAST_WORD):
        yield unbuilt(
            ("buffers", "image"),
            f"im2row of images in words of {channels} channels",
            f"use a power of two, at least {LEAST_WORD}, or `image: null`",
        )


RTL_SIZES: tuple[Callable[[HwSpec], Iterator[Problem]], ...] = (_modes, _widths, _image)
