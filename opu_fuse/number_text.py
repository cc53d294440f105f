"""Numbers as text: how thousands are separated, shares rounded and plurals formed, everywhere."""

import math

_DIGITS = 4
"""Significant digits of a measured number."""
_MINUTE, _HOUR = 60, 3600


def whole(number: float) -> str:
    """An integer with its thousands separated by commas."""
    return f"{round(number):,}"


def rounded(number: float, digits: int = _DIGITS) -> str:
    """A number of that many significant digits, at least its integer part whole. NaN and infinity
    as words.
    """
    if not math.isfinite(number):
        return str(number)
    if not number:
        return "0"
    decimals = max(digits - 1 - math.floor(math.log10(abs(number))), 0)
    text = f"{number:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def percent(share: float, decimals: int = 1) -> str:
    """A share of 1 in percent."""
    return f"{100 * share:.{decimals}f} %"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 group`, `1,024 groups`. plural: where it is not the noun and an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def byte_size(number: int) -> str:
    """Bytes as people say them: `512 bytes`, `2.06 MB` (decimal multiples)."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= factor:
            return f"{rounded(number / factor, 3)} {unit}"
    return counted(number, "byte")


def duration(seconds: float) -> str:
    """`0:07`, `2:05`, `1:02:05`."""
    total = round(seconds)
    hours, minutes, rest = total // _HOUR, total % _HOUR // _MINUTE, total % _MINUTE
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
