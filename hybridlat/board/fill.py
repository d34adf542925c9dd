"""The files of noise that a plan's weights lie in, made from the blocks that the plan carries."""

import os
from typing import Dict


def make_files(blocks: str, folder: str, sizes: Dict[str, int]) -> None:
    """Write the noise files that ``folder`` still lacks, from the blocks in ``blocks``."""
    for name, size in sorted(sizes.items()):
        path = os.path.join(folder, name)
        if os.path.exists(path) and os.path.getsize(path) >= size:
            continue
        with open(os.path.join(blocks, name), "rb") as source:
            content = source.read()
        with open(path + ".part", "wb") as sink:
            written = 0
            while written < size:
                sink.write(content)
                written += len(content)
        os.replace(path + ".part", path)
