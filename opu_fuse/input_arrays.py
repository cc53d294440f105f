"""Inputs that a caller passes without their names: an array, or a list of samples."""

from collections.abc import Mapping, Sequence

import numpy as np

from opu_fuse.errors import UserError

ARRAY_SUFFIXES = frozenset({".npy", ".npz"})
"""Of files of numpy."""

Arrays = Mapping[str, np.ndarray] | np.ndarray | Sequence[np.ndarray]


def by_name(
    argument: str,
    value: object,
    inputs: Mapping[str, Sequence[int]],
    error: type[UserError],
) -> Mapping[str, np.ndarray]:
    """Arrays by the name of their input; a mapping is returned as it is.

    value: a mapping, or for models with one input an array or a list of arrays: samples, each with
    or without the leading axis. argument: its name; inputs: name -> shape of one sample. Raises
    `error` for anything else.
    """
    if isinstance(value, Mapping):
        return value
    wanted = f"give a dictionary of arrays: {', '.join(map(repr, inputs))}"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        kinds = {type(item).__name__ for item in value if not isinstance(item, np.ndarray)}
        if kinds or not value:
            what = f"holds {', '.join(sorted(kinds)) or 'nothing'}, not arrays"
            raise error(argument, what, "give numpy arrays, one a sample")
    elif not isinstance(value, np.ndarray):
        what = f"is {type(value).__name__}, not an array or arrays by name"
        raise error(argument, what, wanted)
    if len(inputs) != 1:
        many = "one array" if isinstance(value, np.ndarray) else "a list of arrays"
        raise error(argument, f"{many} cannot feed {len(inputs)} inputs", wanted)
    ((name, shape),) = inputs.items()
    return {
        name: value if isinstance(value, np.ndarray) else _stacked(argument, value, shape, error)
    }


def _stacked(
    argument: str, samples: Sequence[np.ndarray], shape: Sequence[int], error: type[UserError]
) -> np.ndarray:
    """Samples along the first axis."""
    whole = [s[np.newaxis] if s.ndim == len(shape) - 1 else s for s in samples]
    shapes = {s.shape[1:] for s in whole}
    if len(shapes) > 1 or not all(s.ndim for s in whole):
        found = ", ".join(sorted({str(list(s.shape)) for s in samples}))
        raise error(argument, f"holds arrays of shapes {found}", "give all in the input's shape")
    return whole[0] if len(whole) == 1 else np.concatenate(whole)
