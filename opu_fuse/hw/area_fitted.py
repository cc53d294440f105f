"""What the terms of `area.py` cost: written by `benchmarks/area.py --fit`."""

FITTED: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    "xc7": {
        "control": {
            "lut": {
                "one": 1379.0,
                "bus bits": 0.07734,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 711.5,
                "bus bits": 0.03012,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "queue address bits": 33.68,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 733.2,
                "port bits": 5.594,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 29.29,
                "lanes": 56.8,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "units": 188.0,
                "lanes": 202.4,
            },
            "dsp": {
                "lanes": 0.5,
            }
        },
        "compute": {
            "lut": {
                "one": 1579.0,
            },
            "dsp": {
                "one": 1.333,
                "products of feature addresses": 4.167,
                "products of psum addresses": 0.5,
            }
        },
        "window": {
            "lut": {
                "one": 605.0,
                "lanes": 0.625,
            },
            "dsp": {},
        },
        "array": {
            "lut": {
                "weight bits": 2.664,
                "adder bits": 0.8987,
                "combined bits": 1.152,
                "sum choices": 2.708,
                "aligned bits": 1.608,
                "window choices": 0.3967,
            },
            "dsp": {
                "shared products": 1.0,
                "products": 1.0,
            }
        },
        "accumulate": {
            "lut": {
                "one": 1.902,
                "lanes": 32.33,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 626.0,
                "stages": 87.67,
                "residual units": 141.9,
            },
            "dsp": {
                "products of psum addresses": 2.0,
                "products of residual addresses": 2.0,
            }
        },
        "post": {
            "lut": {
                "edge lanes": 2.446,
                "edges": 13.07,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "one": 515.6,
                "lanes of multipliers": 219.4,
                "lanes of shifters": 130.8,
            },
            "dsp": {
                "lanes of multipliers": 1.0,
            }
        },
        "activate": {
            "lut": {
                "units": 42.71,
                "lanes": 201.7,
            },
            "dsp": {},
        },
        "prelu": {
            "lut": {
                "lanes": 225.1,
            },
            "dsp": {},
        },
        "pool": {
            "lut": {
                "units": 184.2,
                "lanes": 161.9,
                "folded lanes": 30.09,
            },
            "dsp": {
                "lanes": 1.0,
            }
        },
        "residual": {
            "lut": {
                "units": 662.5,
                "lanes of tables": 264.5,
                "lanes of shifters": 116.1,
                "lanes of products": 144.9,
            },
            "dsp": {
                "lanes of multipliers": 2.25,
                "lanes of tables": 0.0625,
                "lanes of products": 1.0,
            }
        },
        "table": {
            "lut": {
                "lanes": 19.93,
            },
            "dsp": {},
        },
        "store": {
            "lut": {
                "one": 1430.0,
                "lanes": 9.259,
            },
            "dsp": {
                "one": 1.0,
            }
        },
    },
    "ecp5": {
        "control": {
            "lut": {
                "one": 3270.0,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 464.7,
                "bus bits": 7.948,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "one": 2260.0,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 1467.0,
                "port bits": 1.202,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 79.96,
                "lanes": 183.5,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "units": 29.33,
                "lanes": 386.7,
            },
            "dsp": {
                "lanes": 0.5,
            }
        },
        "compute": {
            "lut": {
                "one": 1933.0,
                "lanes": 12.34,
            },
            "dsp": {
                "one": 7.564,
                "modes": 0.3159,
            }
        },
        "window": {
            "lut": {
                "one": 904.0,
                "lanes": 13.13,
            },
            "dsp": {},
        },
        "array": {
            "lut": {
                "adder bits": 4.074,
                "combined bits": 1.76,
                "sum choices": 5.484,
                "aligned bits": 3.809,
                "window choices": 1.038,
            },
            "dsp": {
                "shared products": 2.0,
                "products": 1.0,
            }
        },
        "accumulate": {
            "lut": {
                "one": 2.902,
                "lanes": 64.33,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 748.1,
                "stages": 174.7,
                "residual units": 40.04,
                "products of psum addresses": 75.19,
            },
            "dsp": {
                "one": 2.0,
                "residual units": 2.0,
            }
        },
        "post": {
            "lut": {
                "edge lanes": 1.859,
                "edges": 52.01,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "lanes of multipliers": 681.0,
                "lanes of shifters": 326.6,
            },
            "dsp": {
                "lanes of multipliers": 2.0,
            }
        },
        "activate": {
            "lut": {
                "units": 1.0,
                "lanes": 432.0,
            },
            "dsp": {},
        },
        "prelu": {
            "lut": {
                "lanes": 496.6,
            },
            "dsp": {},
        },
        "pool": {
            "lut": {
                "lanes": 454.7,
                "folded lanes": 137.6,
            },
            "dsp": {
                "lanes": 1.0,
            }
        },
        "residual": {
            "lut": {
                "units": 1967.0,
                "lanes of tables": 583.5,
                "lanes of shifters": 153.6,
                "lanes of products": 293.0,
            },
            "dsp": {
                "lanes of multipliers": 2.25,
                "lanes of tables": 0.0625,
                "lanes of products": 2.0,
            }
        },
        "table": {
            "lut": {
                "lanes": 21.94,
            },
            "dsp": {},
        },
        "store": {
            "lut": {
                "one": 2394.0,
                "lanes": 8.73,
            },
            "dsp": {
                "one": 1.0,
            }
        },
    }
}
