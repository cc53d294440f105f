"""What the terms of `area.py` cost: written by `benchmarks/area.py --fit`."""

FITTED: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    "xc7": {
        "control": {
            "lut": {
                "one": 1395.0,
                "bus bits": 0.06686,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 693.7,
                "bus bits": 0.6361,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "queue address bits": 34.88,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 867.1,
                "port bits": 0.9924,
                "im2row": 467.4,
                "im2row lanes": 19.72,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 34.87,
                "lanes": 56.75,
                "lanes written alone": 3.092,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "units": 133.5,
                "lanes": 204.7,
                "gates": 131.2,
                "gated lanes": 58.9,
            },
            "dsp": {
                "lanes": 0.5,
            },
        },
        "compute": {
            "lut": {
                "one": 1489.0,
                "lanes": 4.645,
                "modes": 6.369,
            },
            "dsp": {
                "one": 1.4,
                "products of feature addresses": 4.076,
                "products of psum addresses": 0.961,
            },
        },
        "window": {
            "lut": {
                "one": 583.2,
                "lanes": 0.3713,
            },
            "dsp": {},
        },
        "array": {
            "lut": {
                "weight bits": 0.3041,
                "entering bits": 2.202,
                "operand choices": 0.5762,
                "adder bits": 1.01,
                "combined bits": 1.232,
                "sum choices": 1.717,
                "aligned bits": 1.199,
                "window choices": 0.3759,
                "window bits": 0.5882,
                "products": 7.778,
                "terms in tables": 40.21,
            },
            "dsp": {
                "shared products": 1.0,
                "products": 1.0,
            },
        },
        "accumulate": {
            "lut": {
                "one": 2.369,
                "lanes": 32.36,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 714.7,
                "stages": 46.39,
                "residual units": 131.2,
            },
            "dsp": {
                "products of psum addresses": 2.0,
                "products of residual addresses": 2.0,
            },
        },
        "post": {
            "lut": {
                "edge lanes": 2.445,
                "edges": 9.241,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "one": 65.1,
                "lanes of multipliers": 240.8,
                "lanes of shifters": 150.6,
                "lanes that wait for a turn": 61.72,
            },
            "dsp": {
                "lanes of multipliers": 1.0,
            },
        },
        "activate": {
            "lut": {
                "units": 40.8,
                "lanes": 206.0,
            },
            "dsp": {},
        },
        "prelu": {
            "lut": {
                "units": 46.69,
                "lanes": 222.5,
            },
            "dsp": {},
        },
        "pool": {
            "lut": {
                "units": 72.71,
                "lanes": 172.1,
                "folded lanes": 7.067,
            },
            "dsp": {
                "lanes": 1.0,
            },
        },
        "residual": {
            "lut": {
                "units": 22.65,
                "units that scale zeros": 40.37,
                "lanes of multipliers": 72.4,
                "lanes of tables": 281.7,
                "lanes of shifters": 200.2,
                "lanes of products": 241.9,
            },
            "dsp": {
                "units that scale zeros": 2.0,
                "lanes of multipliers": 2.0,
                "lanes of products": 1.0,
            },
        },
        "table": {
            "lut": {
                "lanes": 18.53,
            },
            "dsp": {},
        },
        "norm": {
            "lut": {
                "units": 1617.0,
                "lanes": 509.7,
            },
            "dsp": {
                "units": 10.0,
                "lanes": 2.0,
            },
        },
        "store": {
            "lut": {
                "one": 1374.0,
                "lanes": 7.535,
            },
            "dsp": {
                "one": 1.0,
            },
        },
    },
    "ecp5": {
        "control": {
            "lut": {
                "one": 3717.0,
                "bus bits": 0.3074,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 621.7,
                "bus bits": 5.991,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "one": 1907.0,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 1321.0,
                "port bits": 0.8589,
                "im2row": 500.6,
                "im2row lanes": 43.58,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 151.8,
                "lanes": 182.7,
                "lanes written alone": 25.68,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "units": 125.6,
                "lanes": 391.1,
                "gates": 121.7,
                "gated lanes": 141.3,
            },
            "dsp": {
                "lanes": 0.5,
                "gated lanes": 0.5,
            },
        },
        "compute": {
            "lut": {
                "one": 1863.0,
                "lanes": 2.567,
                "modes": 81.55,
                "products of feature addresses": 103.6,
            },
            "dsp": {
                "one": 7.453,
                "modes": 0.288,
                "products of psum addresses": 0.073,
            },
        },
        "window": {
            "lut": {
                "one": 847.3,
                "lanes": 1.677,
            },
            "dsp": {},
        },
        "array": {
            "lut": {
                "weight bits": 2.529,
                "combined bits": 1.616,
                "sum choices": 2.024,
                "aligned bits": 5.766,
                "window choices": 0.7318,
                "window bits": 1.283,
                "terms in tables": 93.29,
            },
            "dsp": {
                "products": 1.0,
            },
        },
        "accumulate": {
            "lut": {
                "one": 3.369,
                "lanes": 64.36,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 750.8,
                "stages": 82.51,
                "residual units": 107.6,
                "products of psum addresses": 50.81,
                "products of residual addresses": 54.6,
            },
            "dsp": {
                "one": 2.0,
                "residual units": 2.0,
            },
        },
        "post": {
            "lut": {
                "edge lanes": 5.943,
                "edges": 14.91,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "one": 24.6,
                "lanes of multipliers": 394.5,
                "lanes of shifters": 280.2,
                "lanes that wait for a turn": 136.5,
            },
            "dsp": {
                "lanes of multipliers": 2.0,
            },
        },
        "activate": {
            "lut": {
                "units": 1.0,
                "lanes": 430.0,
            },
            "dsp": {},
        },
        "prelu": {
            "lut": {
                "units": 64.08,
                "lanes": 442.3,
            },
            "dsp": {},
        },
        "pool": {
            "lut": {
                "units": 4.172,
                "lanes": 487.9,
                "folded lanes": 14.38,
            },
            "dsp": {
                "lanes": 1.0,
            },
        },
        "residual": {
            "lut": {
                "units": 155.0,
                "lanes of multipliers": 206.0,
                "lanes of tables": 624.5,
                "lanes of shifters": 379.5,
                "lanes of products": 561.3,
            },
            "dsp": {
                "units that scale zeros": 2.0,
                "lanes of multipliers": 2.0,
                "lanes of products": 2.0,
            },
        },
        "table": {
            "lut": {
                "lanes": 20.53,
            },
            "dsp": {},
        },
        "norm": {
            "lut": {
                "units": 2010.0,
                "lanes": 972.5,
            },
            "dsp": {
                "units": 10.0,
                "lanes": 4.0,
            },
        },
        "store": {
            "lut": {
                "one": 2109.0,
                "bus bits": 0.4595,
                "lanes": 10.45,
            },
            "dsp": {
                "one": 1.0,
            },
        },
    },
}
