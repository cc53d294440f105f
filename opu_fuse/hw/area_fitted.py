"""What the terms of `area.py` cost: written by `benchmarks/area.py --fit`."""

FITTED: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    "xc7": {
        "control": {
            "lut": {
                "one": 1395.0,
                "bus bits": 0.06682,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 692.7,
                "bus bits": 0.6328,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "queue address bits": 34.79,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 868.3,
                "port bits": 0.9604,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 34.07,
                "lanes": 56.82,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "units": 162.7,
                "lanes": 204.3,
            },
            "dsp": {
                "lanes": 0.5,
            }
        },
        "compute": {
            "lut": {
                "one": 1480.0,
                "lanes": 7.103,
            },
            "dsp": {
                "one": 1.4,
                "products of feature addresses": 4.076,
                "products of psum addresses": 1.001,
            }
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
                "weight bits": 0.295,
                "entering bits": 2.227,
                "operand choices": 0.51,
                "adder bits": 1.036,
                "combined bits": 1.144,
                "sum choices": 1.769,
                "aligned bits": 1.164,
                "window choices": 0.3726,
                "window bits": 0.6105,
                "products": 7.993,
            },
            "dsp": {
                "shared products": 1.0,
                "products": 1.0,
            }
        },
        "accumulate": {
            "lut": {
                "one": 2.261,
                "lanes": 32.38,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 722.0,
                "stages": 44.67,
                "residual units": 134.3,
            },
            "dsp": {
                "products of psum addresses": 2.0,
                "products of residual addresses": 2.0,
            }
        },
        "post": {
            "lut": {
                "edge lanes": 2.455,
                "edges": 9.168,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "one": 64.58,
                "lanes of multipliers": 240.9,
                "lanes of shifters": 150.7,
                "lanes that wait for a turn": 61.7,
            },
            "dsp": {
                "lanes of multipliers": 1.0,
            }
        },
        "activate": {
            "lut": {
                "units": 40.78,
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
                "units": 70.0,
                "lanes": 172.5,
                "folded lanes": 6.953,
            },
            "dsp": {
                "lanes": 1.0,
            }
        },
        "residual": {
            "lut": {
                "units": 22.65,
                "units that scale zeros": 50.84,
                "lanes of multipliers": 71.35,
                "lanes of tables": 287.9,
                "lanes of shifters": 200.2,
                "lanes of products": 241.9,
            },
            "dsp": {
                "units that scale zeros": 2.0,
                "lanes of multipliers": 2.0,
                "lanes of products": 1.0,
            }
        },
        "table": {
            "lut": {
                "lanes": 18.53,
            },
            "dsp": {},
        },
        "store": {
            "lut": {
                "one": 1370.0,
                "lanes": 8.192,
            },
            "dsp": {
                "one": 1.0,
            }
        },
    },
    "ecp5": {
        "control": {
            "lut": {
                "one": 3719.0,
                "bus bits": 0.3155,
            },
            "dsp": {},
        },
        "fetch": {
            "lut": {
                "one": 624.0,
                "bus bits": 5.999,
            },
            "dsp": {},
        },
        "issue": {
            "lut": {
                "one": 1925.0,
            },
            "dsp": {},
        },
        "load": {
            "lut": {
                "one": 1320.0,
                "port bits": 0.8649,
            },
            "dsp": {},
        },
        "buffers": {
            "lut": {
                "one": 165.5,
                "lanes": 182.8,
            },
            "dsp": {},
        },
        "affine": {
            "lut": {
                "units": 31.05,
                "lanes": 392.6,
            },
            "dsp": {
                "lanes": 0.5,
            }
        },
        "compute": {
            "lut": {
                "one": 1846.0,
                "lanes": 5.187,
                "modes": 71.98,
                "products of feature addresses": 102.2,
                "products of psum addresses": 17.24,
            },
            "dsp": {
                "one": 7.447,
                "modes": 0.2924,
                "products of psum addresses": 0.06706,
            }
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
                "weight bits": 2.525,
                "combined bits": 1.646,
                "sum choices": 2.001,
                "aligned bits": 5.779,
                "window choices": 0.7329,
                "window bits": 1.281,
            },
            "dsp": {
                "products": 1.0,
            }
        },
        "accumulate": {
            "lut": {
                "one": 3.261,
                "lanes": 64.38,
            },
            "dsp": {},
        },
        "post_walk": {
            "lut": {
                "one": 755.5,
                "stages": 81.3,
                "residual units": 108.8,
                "products of psum addresses": 51.99,
                "products of residual addresses": 58.85,
            },
            "dsp": {
                "one": 2.0,
                "residual units": 2.0,
            }
        },
        "post": {
            "lut": {
                "edge lanes": 5.939,
                "edges": 14.94,
            },
            "dsp": {},
        },
        "requant": {
            "lut": {
                "one": 23.73,
                "lanes of multipliers": 394.6,
                "lanes of shifters": 280.3,
                "lanes that wait for a turn": 136.5,
            },
            "dsp": {
                "lanes of multipliers": 2.0,
            }
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
                "lanes": 488.7,
                "folded lanes": 14.11,
            },
            "dsp": {
                "lanes": 1.0,
            }
        },
        "residual": {
            "lut": {
                "units": 159.0,
                "lanes of multipliers": 205.6,
                "lanes of tables": 633.0,
                "lanes of shifters": 379.2,
                "lanes of products": 560.9,
            },
            "dsp": {
                "units that scale zeros": 2.0,
                "lanes of multipliers": 2.0,
                "lanes of products": 2.0,
            }
        },
        "table": {
            "lut": {
                "lanes": 20.53,
            },
            "dsp": {},
        },
        "store": {
            "lut": {
                "one": 2108.0,
                "bus bits": 0.2224,
                "lanes": 12.45,
            },
            "dsp": {
                "one": 1.0,
            }
        },
    }
}
