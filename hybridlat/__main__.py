"""``python -m hybridlat``: the same as the command ``hybridlat``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] != str(Path(__file__).resolve().parents[1]):
        del sys.path[0]  # the user's folder, whose ``random.py`` is none of Python's own
    from hybridlat.cli.main import main

    main()
