"""Makes the modules that build test graphs (tests/dfg) importable: pytest runs in importlib mode, without sys.path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
