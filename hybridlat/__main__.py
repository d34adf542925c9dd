"""``python -m hybridlat``: the same as the command ``hybridlat``."""

from hybridlat.cli.main import main

if __name__ == "__main__":
    main()
