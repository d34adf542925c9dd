"""Targets are read back as they were written, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridlat.errors import TargetError
from hybridlat.schema.target import PRECISIONS, Target

parts = st.from_regex(r"[a-z0-9][a-z0-9._+-]{0,12}", fullmatch=True)


@given(parts, parts, st.sampled_from(PRECISIONS), st.none() | st.integers(1, 9999))
def test_what_is_written_is_read_back(
    device: str, runtime: str, precision: str, threads: int | None
) -> None:
    target = Target(device, runtime, precision, threads)
    assert Target.parse(str(target)) == target
    assert "/" not in target.folder
    assert target.runtime == target.engine + (f"-{target.version}" if target.version else "")


@pytest.mark.parametrize(
    "text",
    [
        "v100\n/tensorrt/fp16", "v100/tensorrt\n/fp16", "v100/tensorrt/fp16\n/1t",
        "v100/tensorrt/fp16/1t\n/", "../x/fp16", "a b/c/fp32", "V100/tensorrt/fp16",
        "v100/tensorrt", "v100/tensorrt/fp8", "v100/tensorrt/fp16/0t", "",
    ],
)  # fmt: skip
def test_what_would_be_a_strange_folder_is_no_target(text: str) -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse(text)
    assert "\n" not in str(caught.value)
