"""From a file to a valid ONNX graph of standard operators."""
