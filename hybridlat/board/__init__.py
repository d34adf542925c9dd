"""What runs on a board: standard library only, Python 3.6 syntax, no import of hybridlat.

A plan folder carries a copy of this package as ``hybridlat_board`` beside ``worker.py``, and the
TensorRT backend starts the same code in a worker process, with whichever Python has TensorRT.
"""
