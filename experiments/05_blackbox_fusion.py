"""The black-box fusion test against engines whose fusion is known.

``python experiments/05_blackbox_fusion.py [onnxruntime] [openvino]`` (about 30 s an engine)

Prints for every chain of operators what timing says of its last one and what the engine says when
it is asked. Timings need a quiet machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hybridlat import backends
from hybridlat.errors import HybridlatError
from hybridlat.lowering import blackbox


def main(names: list[str]) -> None:
    """Test each engine and print its table."""
    for name in names or ["onnxruntime", "openvino"]:
        try:
            backend = backends.open_backend(name)
        except HybridlatError as error:
            print(f"{name}: {error}")
            continue
        print(f"{backend.target}\n{'chain':32} {'apart us':>18} {'together':>9} saved  found  true")
        right = asked = 0
        for finding in blackbox.find(backend):
            true = blackbox.truth(backend.lower, finding.case)
            asked += true is not None
            right += finding.fused == true
            apart = f"{finding.first_us:.1f} + {finding.second_us:.1f}"
            print(
                f"{finding.case.label:32} {apart:>18} {finding.together_us:9.1f} "
                f"{finding.saved_share:5.2f}  {'fused' if finding.fused else 'apart'}  "
                f"{'-' if true is None else 'fused' if true else 'apart'}"
                f"{'' if true is None or true == finding.fused else '   <- wrong'}"
            )
        print(f"{right} of {asked} right\n")


if __name__ == "__main__":
    main(sys.argv[1:])
