"""State that goes two ways from some point on."""

from copy import copy
from typing import Self


class Forking:
    """Something with mutable state in containers of its own."""

    def fork(self) -> Self:
        """A copy that goes its own way."""
        result = copy(self)
        result.detach()
        return result

    def detach(self) -> None:
        """Copy all that changes, after a shallow copy of the whole."""
        raise NotImplementedError
