"""Networks with attention of timm, ultralytics and transformers, with random weights, as ONNX files
for `benchmarks/attention.py`.

    python benchmarks/attention_export.py DIR [NETWORK …]

Needs torch and the package of a network, none of which opu-fuse depends on. Nothing is downloaded.
Opset 17, by the exporter that traces (`dynamo=False`). Batch norms get the moments of noise, and
the factors that training starts at zero or nearly so get 0.5: otherwise some maps would vanish.
"""

import argparse
import importlib
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

torch: Any = importlib.import_module("torch")
Model = tuple[Any, Any]
"""A module and its input."""


def _timm(architecture: str, size: int) -> Model:
    timm = importlib.import_module("timm")
    return timm.create_model(architecture, pretrained=False), torch.randn(1, 3, size, size)


def _yolo(name: str, size: int) -> Model:
    """A detector with its arithmetic of boxes, without the search for the best ones."""
    model = importlib.import_module("ultralytics").YOLO(f"{name}.yaml").model.float().eval()
    head = model.model[-1]
    head.export, head.format, head.dynamic = True, "onnx", False
    return model, torch.randn(1, 3, size, size)


class _Encoder(torch.nn.Module):
    """RT-DETR's hybrid encoder (ResNet-18's widths) on the three maps of its backbone."""

    def __init__(self) -> None:
        super().__init__()
        config = importlib.import_module("transformers").RTDetrConfig(
            encoder_in_channels=[128, 256, 512], hidden_expansion=0.5
        )
        module = importlib.import_module("transformers.models.rt_detr.modeling_rt_detr")
        self.encoder = module.RTDetrHybridEncoder(config)
        wide = config.encoder_hidden_dim
        self.widths = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Conv2d(c, wide, 1, bias=False), torch.nn.BatchNorm2d(wide))
            for c in config.encoder_in_channels
        )

    def forward(self, *maps: Any) -> Any:
        inputs = [width(m) for width, m in zip(self.widths, maps, strict=True)]
        return self.encoder(inputs, return_dict=False)[0]


def _rtdetr_encoder(size: int) -> Model:
    shapes = ((128, size // 8), (256, size // 16), (512, size // 32))
    return _Encoder(), tuple(torch.randn(1, c, side, side) for c, side in shapes)


NETWORKS: Mapping[str, Callable[[], Model]] = {
    "efficientvit_b0": partial(_timm, "efficientvit_b0", 224),
    "fastvit_sa12": partial(_timm, "fastvit_sa12", 224),
    "mobilenetv4_hybrid": partial(_timm, "mobilenetv4_hybrid_medium", 224),
    "efficientformerv2_s0": partial(_timm, "efficientformerv2_s0", 224),
    "tiny_vit_5m": partial(_timm, "tiny_vit_5m_224", 224),
    "mobilevitv2_050": partial(_timm, "mobilevitv2_050", 256),
    "mobilevitv2": partial(_timm, "mobilevitv2_100", 256),
    "yolo12n": partial(_yolo, "yolo12n", 320),
    "rtdetr_encoder": partial(_rtdetr_encoder, 320),
}


def _revive(model: Any, inputs: tuple[Any, ...]) -> None:
    """Give a module moments and factors with which no map vanishes."""
    for name, parameter in model.named_parameters():
        if (
            parameter.dim() < 4
            and "bias" not in name
            and float(parameter.detach().abs().max()) < 0.01
        ):
            parameter.data.fill_(0.5)
    for norm in (m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)):
        norm.reset_running_stats()
        norm.momentum = 1.0
        norm.train()
    batches = [torch.cat([torch.randn_like(v) for _ in range(4)]) for v in inputs]
    with torch.no_grad():
        model(*batches)
    model.eval()


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.networks or NETWORKS:
        torch.manual_seed(0)
        model, inputs = NETWORKS[name]()
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        path = str(args.folder / f"{name}.onnx")
        _revive(model.eval(), inputs)
        torch.onnx.export(model, inputs, path, dynamo=False, opset_version=17)


if __name__ == "__main__":
    main()
