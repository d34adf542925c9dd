"""Tests that take the better part of a minute and hardly ever fail alone are run when asked for."""

import os

import pytest

slow = pytest.mark.skipif(
    not os.environ.get("HYBRIDLAT_SLOW_TESTS"), reason="slow: HYBRIDLAT_SLOW_TESTS=1 runs it"
)
