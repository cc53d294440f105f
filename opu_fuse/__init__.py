"""ONNX CNNs as instruction bundles for an accelerator described in YAML."""

__version__ = "0.1.0"
