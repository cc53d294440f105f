"""Libraries that are optional extras of opu-fuse."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from opu_fuse.errors import RunError

if TYPE_CHECKING:
    import pandas as pd

FRAMES_EXTRA = "notebook"


def library(name: str, *, where: str, purpose: str, extra: str) -> Any:
    """An imported module. where: who needs it; purpose: what it does, as "charts are drawn by".

    Raises RunError with the name of the extra where it is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("opu_fuse"):
            raise  # not the library
        raise RunError(
            where,
            f"{purpose} {error.name}, which is not installed",
            f"pip install 'opu-fuse[{extra}]'",
        ) from None


def frame(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> "pd.DataFrame":
    """Rows as a pandas table; it has its columns without any row, too. Raises RunError without
    pandas.
    """
    pandas = library("pandas", where="to_frame", purpose="tables are those of", extra=FRAMES_EXTRA)
    return pandas.DataFrame([*rows], columns=[*columns])
