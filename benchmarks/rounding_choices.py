"""Trained networks after rounding with the choices of `compile`: methods, biases, equalisation.

    pip install 'opu-fuse[models,tflite]'
    python benchmarks/rounding_choices.py [--packages FOLDER] [--only NAME ...] [--choices NAME ...]

Networks, pictures and what is compared are those of `real_models.py`: decibels at the outputs
against the float model, here on 16 parts of pictures that were not calibrated on, with powers of
two and with free scales. No bar is held: the default is what wins on most.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
from quantisation import outputs, ratio
from real_models import CALIBRATED, NETWORKS, _of_shape, _session, samples_of

from opu_fuse.pipeline import Options, prepare_model

MEASURED = 16
CHOICES: dict[str, dict[str, Any]] = {
    "default": {},
    "bias correction": {"bias_correction": True},
    "equalisation": {"equalisation": True},
    "both": {"bias_correction": True, "equalisation": True},
    "max": {"calibration_method": "max"},
    "percentile": {"calibration_method": "percentile"},
    "entropy": {"calibration_method": "entropy"},
}


def main() -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--packages", type=Path, help="their folder if not installed")
    parser.add_argument("--only", nargs="*", metavar="NAME", choices=[*NETWORKS, "digits"])
    parser.add_argument("--choices", nargs="*", choices=CHOICES, default=[*CHOICES])
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"| network | {' | '.join(args.choices)} |\n|---|{'---|' * len(args.choices)}")
    for name in args.only or ["digits", *NETWORKS]:
        cells = decibels(name, args.packages, args.choices)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return 0


def decibels(name: str, packages: Path | None, choices: list[str]) -> list[str]:
    """Of each choice: those with powers of two, those with free scales."""
    model, samples = samples_of(name, packages)
    calibration = {i: np.stack([s[i] for s in samples[:CALIBRATED]]) for i in samples[0]}
    measured = samples[CALIBRATED : CALIBRATED + MEASURED]
    sizes = {} if name == "digits" else {i: s.shape for i, s in samples[0].items()}
    exact = outputs(_session(_of_shape(model, samples[0])), measured)
    cells = []
    for choice in choices:
        pair = []
        for scales in ("pow2", "free"):
            options = Options(
                scales=scales, calibration=calibration, shapes=sizes, **CHOICES[choice]
            )
            prepared = prepare_model(model, options)
            assert prepared.qdq is not None
            pair.append(f"{ratio(exact, outputs(_session(prepared.qdq), measured)):.1f}")
        cells.append(", ".join(pair))
    return cells


if __name__ == "__main__":
    sys.exit(main())
