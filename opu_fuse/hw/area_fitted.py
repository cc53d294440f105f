"""What the terms of `area.py` cost: written by `benchmarks/area.py --fit`."""

FITTED: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    "xc7": {
        "control": {
            "lut": {
                "one": 1322.0,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 618.8,
                "bus bits": 0.07074,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "one": 471.3,
                "queue address bits": 9.625,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 1039.0,
                "port bits": 2.355,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 35.22,
                "lanes": 88.73,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "lanes": 294.8,
            },
            "dsp": {},
        },
        "compute": {
            "lut": {
                "one": 1416.0,
            },
            "dsp": {
                "one": 3.0,
                "products of feature addresses": 5.0,
            },
        },
        "window": {
            "lut": {
                "lanes": 80.62,
            },
            "dsp": {
                "one": 2.0,
            },
        },
        "array": {
            "lut": {
                "adder bits": 1.469,
                "combined bits": 4.315,
                "sum choices": 2.664,
                "window choices": 0.8081,
            },
            "dsp": {
                "shared products": 1.0,
                "products": 1.0,
            },
        },
        "accumulate": {
            "lut": {
                "one": 3.333,
                "lanes": 64.17,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 474.7,
                "stages": 90.1,
                "residual units": 133.8,
            },
            "dsp": {
                "products of psum addresses": 2.0,
                "products of residual addresses": 2.0,
            },
        },
        "post": {
            "lut": {
                "edge lanes": 2.303,
                "edges": 15.01,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "one": 110.0,
                "lanes of multipliers": 313.6,
                "lanes of shifters": 192.6,
            },
            "dsp": {
                "lanes of multipliers": 1.0,
            },
        },
        "activate": {
            "lut": {
                "units": 34.0,
                "lanes": 224.6,
            },
            "dsp": {},
        },
        "prelu": {
            "lut": {
                "units": 34.0,
                "lanes": 224.6,
            },
            "dsp": {},
        },
        "pool": {
            "lut": {
                "units": 49.0,
                "lanes": 278.5,
            },
            "dsp": {
                "lanes": 1.0,
            },
        },
        "residual": {
            "lut": {
                "lanes of multipliers": 141.1,
                "lanes of shifters": 226.6,
                "lanes of products": 165.1,
            },
            "dsp": {
                "lanes of multipliers": 2.25,
            },
        },
        "table": {
            "lut": {
                "lanes": 18.38,
            },
            "dsp": {},
        },
        "store": {
            "lut": {
                "one": 1569.0,
                "bus bits": 0.5603,
                "lanes": 3.5,
            },
            "dsp": {
                "one": 1.0,
            },
        },
    },
    "ecp5": {
        "control": {
            "lut": {
                "one": 3113.0,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 769.0,
                "bus bits": 2.609,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "one": 1113.0,
                "queue address bits": 14.0,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 1915.0,
                "port bits": 0.7682,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 378.2,
                "lanes": 182.5,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "lanes": 542.1,
            },
            "dsp": {},
        },
        "compute": {
            "lut": {
                "one": 1898.0,
                "lanes": 1.687,
            },
            "dsp": {
                "one": 9.286,
            },
        },
        "window": {
            "lut": {
                "lanes": 130.0,
            },
            "dsp": {
                "one": 2.0,
            },
        },
        "array": {
            "lut": {
                "adder bits": 2.97,
                "combined bits": 6.787,
                "sum choices": 6.808,
                "window choices": 0.8419,
            },
            "dsp": {
                "shared products": 2.0,
                "products": 1.0,
            },
        },
        "accumulate": {
            "lut": {
                "one": 4.333,
                "lanes": 64.17,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "stages": 162.0,
                "residual units": 600.0,
                "products of psum addresses": 638.5,
            },
            "dsp": {
                "one": 2.0,
                "residual units": 2.0,
            },
        },
        "post": {
            "lut": {
                "edge lanes": 0.1347,
                "edges": 66.94,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "lanes of multipliers": 654.4,
                "lanes of shifters": 340.0,
            },
            "dsp": {
                "lanes of multipliers": 2.0,
            },
        },
        "activate": {
            "lut": {
                "lanes": 492.6,
            },
            "dsp": {},
        },
        "prelu": {
            "lut": {
                "lanes": 492.6,
            },
            "dsp": {},
        },
        "pool": {
            "lut": {
                "units": 261.0,
                "lanes": 542.9,
            },
            "dsp": {
                "lanes": 2.0,
            },
        },
        "residual": {
            "lut": {
                "lanes of multipliers": 277.6,
                "lanes of shifters": 392.1,
                "lanes of products": 300.9,
            },
            "dsp": {
                "lanes of multipliers": 2.25,
            },
        },
        "table": {
            "lut": {
                "lanes": 20.38,
            },
            "dsp": {},
        },
        "store": {
            "lut": {
                "one": 2740.0,
            },
            "dsp": {
                "one": 1.0,
            },
        },
    },
}
