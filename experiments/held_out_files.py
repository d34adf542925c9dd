"""Files of networks that nothing was learned from: answers beside plain loops on the files.

    python experiments/held_out_files.py FOLDER --export      # 30 transformers of timm, 2 min
    python experiments/held_out_files.py FOLDER --target epyc-26-2/onnxruntime-1.31/fp32/1t

Needs timm and PyTorch beside the project for ``--export``, and a quiet machine for the loops.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments.plain_loop import loop_us
from hybridlat import Predictor

NAMES = """
    caformer_s18 coatnet_nano_rw_224 crossvit_9_240 deit_tiny_patch16_224 edgenext_small
    efficientformerv2_s0 efficientvit_b1 efficientvit_m2 flexivit_small focalnet_tiny_srf
    gcvit_xxtiny hiera_tiny_224 inception_next_atto levit_192 maxvit_rmlp_pico_rw_256 mobilevit_xxs
    mobilevitv2_075 nextvit_small pit_xs_224 poolformer_s12 pvt_v2_b1 resmlp_12_224 swin_s3_tiny_224
    tiny_vit_5m_224 twins_pcpvt_small visformer_small vit_relpos_small_patch16_224
    vit_small_patch32_224 vit_tiny_r_s16_p8_224 xcit_tiny_12_p16_224"""
ROUNDS = 2


def export(folder: Path) -> None:
    """The networks as PyTorch's first exporter writes them; weights are random."""
    import timm
    import torch

    for name in NAMES.split():
        network = timm.create_model(name, pretrained=False).eval()
        image = torch.zeros(1, *network.default_cfg["input_size"])
        path = folder / f"{name}.onnx"
        torch.onnx.export(network, (image,), path, opset_version=17, dynamo=False)


def main() -> None:
    """One line a file, and one of all: true and answered in ms, error, interval."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--target")
    chosen = parser.parse_args()
    if chosen.export:
        export(chosen.folder)
        return
    files = sorted(chosen.folder.glob("*.onnx"))
    loops = np.array([[loop_us(file, as_it_is=True) for file in files] for _ in range(ROUNDS)])
    rows = []
    with Predictor(chosen.target, measure="never", store="sqlite://") as predictor:
        for file, true_us in zip(files, loops.mean(axis=0), strict=True):
            answer = predictor.predict(file)
            assert answer.latency_us is not None and answer.interval_us is not None
            low_us, high_us = answer.interval_us
            rows.append((answer.latency_us / true_us - 1, low_us <= true_us <= high_us))
            print(f"{file.stem:32} {true_us / 1e3:8.2f} {answer.latency_us / 1e3:8.2f}", end=" ")
            print(f"{100 * rows[-1][0]:+6.1f} % {low_us / 1e3:7.2f} - {high_us / 1e3:7.2f}")
    errors = np.array([error for error, _ in rows])
    inside, apart = np.mean([each for _, each in rows]), np.log(loops[0] / loops[1]).std()
    print(f"{len(rows)} files: RMSPE {100 * math.sqrt((errors**2).mean()):.1f} %", end=", ")
    print(f"bias {100 * errors.mean():+.1f}, median {100 * np.median(abs(errors)):.1f}", end=", ")
    print(f"{100 * inside:.0f} % inside; rounds {100 * apart:.1f} % apart")


if __name__ == "__main__":
    main()
