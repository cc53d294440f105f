"""Names of the forms in which a program holds its host segments."""

from enum import StrEnum
from typing import Literal


class HostForm(StrEnum):
    """For ONNX Runtime, as Python runs them; in C as well, as libopu does."""

    ONNXRUNTIME = "onnxruntime"
    C = "c"


HostFormLike = HostForm | Literal["onnxruntime", "c"]
"""As an argument; the names are those above (`tests/api/test_public_api.py`)."""
