"""The five CUDA calls through pycuda or cuda-python, for those who have one already."""

import importlib
import os
from typing import Any, Dict, List, Optional

from .cuda import CtypesCuda, Cuda, Work, probe
from .errors import EngineError, NoDevice

CHOICES = ("ctypes", "pycuda", "cuda-python")


class PyCuda(Cuda):
    """pycuda's driver module. It has no graphs: work that is captured is enqueued anew instead."""

    def __init__(self, device: int = 0) -> None:
        probe()
        self._driver = importlib.import_module("pycuda.driver")
        self._driver.init()
        self._context = self._driver.Device(device).retain_primary_context()
        self._context.push()
        self._stream = self._driver.Stream()
        self.stream = int(self._stream.handle)
        self._memory: List[Any] = []

    def allocate(self, size: int) -> int:
        size = max(int(size), 256)
        block = self._driver.mem_alloc(size)
        self._driver.memset_d8(int(block), 0, size)
        self._memory.append(block)
        return int(block)

    def upload(self, address: int, data: bytes) -> None:
        self._driver.memcpy_htod(address, data)

    def capture(self, enqueue: Work) -> Work:
        return enqueue

    def elapsed_us(self, works: List[Work], during: Optional[Work] = None) -> List[float]:
        events = [self._driver.Event() for _ in range(len(works) + 1)]
        events[0].record(self._stream)
        for position, work in enumerate(works):
            work()
            events[position + 1].record(self._stream)
        if during is not None:
            during()
        events[-1].synchronize()
        return [before.time_till(after) * 1e3 for before, after in zip(events, events[1:])]

    def release(self) -> None:
        for block in self._memory:
            block.free()
        self._memory = []

    def describe(self) -> Dict[str, str]:
        device = self._context.get_device()
        major, minor = device.compute_capability()
        return {
            "gpu": device.name(),
            "pci_bus": device.pci_bus_id(),
            "memory_bytes": str(device.total_memory()),
            "compute_capability": "%d.%d" % (major, minor),
        }


class CudaPython(Cuda):
    """NVIDIA's cuda-python: ``cuda.bindings.driver``, or ``cuda.cuda`` before version 12.8."""

    def __init__(self, device: int = 0) -> None:
        probe()
        try:
            self._driver = importlib.import_module("cuda.bindings.driver")
        except ImportError:
            self._driver = importlib.import_module("cuda.cuda")
        self._call("cuInit", 0)
        self._device = self._call("cuDeviceGet", device)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", self._device))
        self._stream = self._call("cuStreamCreate", 1)
        self.stream = int(self._stream)
        self._memory: List[Any] = []
        self._graphs: List[Any] = []

    def _call(self, name: str, *arguments: Any) -> Any:
        result = getattr(self._driver, name)(*arguments)
        if int(result[0]):
            raise EngineError("CUDA refused %s with status %d" % (name, int(result[0])))
        return result[1] if len(result) > 1 else None

    def allocate(self, size: int) -> int:
        size = max(int(size), 256)
        address = self._call("cuMemAlloc", size)
        self._call("cuMemsetD8", address, 0, size)
        self._memory.append(address)
        return int(address)

    def upload(self, address: int, data: bytes) -> None:
        self._call("cuMemcpyHtoD", address, data, len(data))

    def capture(self, enqueue: Work) -> Work:
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, mode)
        try:
            enqueue()
        finally:
            graph = self._call("cuStreamEndCapture", self._stream)
        executable = self._call("cuGraphInstantiate", graph, 0)
        self._graphs.append(executable)
        return lambda: self._call("cuGraphLaunch", executable, self._stream)

    def elapsed_us(self, works: List[Work], during: Optional[Work] = None) -> List[float]:
        events = [self._call("cuEventCreate", 0) for _ in range(len(works) + 1)]
        self._call("cuEventRecord", events[0], self._stream)
        for position, work in enumerate(works):
            work()
            self._call("cuEventRecord", events[position + 1], self._stream)
        if during is not None:
            during()
        self._call("cuEventSynchronize", events[-1])
        times_us = [
            float(self._call("cuEventElapsedTime", a, b)) * 1e3 for a, b in zip(events, events[1:])
        ]
        for event in events:
            self._call("cuEventDestroy", event)
        return times_us

    def release(self) -> None:
        for executable in self._graphs:
            self._call("cuGraphExecDestroy", executable)
        for address in self._memory:
            self._call("cuMemFree", address)
        self._graphs, self._memory = [], []

    def describe(self) -> Dict[str, str]:
        name = self._call("cuDeviceGetName", 128, self._device)
        return {"gpu": name.split(b"\0")[0].decode("utf-8", "replace")}


def open_cuda(choice: Optional[str] = None, device: int = 0) -> Cuda:
    """The CUDA that ``choice`` or HYBRIDLAT_CUDA names; ctypes, which needs nothing, if neither."""
    choice = choice or os.environ.get("HYBRIDLAT_CUDA") or "ctypes"
    makers = {"ctypes": CtypesCuda, "pycuda": PyCuda, "cuda-python": CudaPython}
    if choice not in makers:
        raise NoDevice("%r is no way to reach CUDA: choose %s" % (choice, ", ".join(CHOICES)))
    try:
        return makers[choice](device)  # type: ignore[abstract, no-any-return, unused-ignore]
    except ImportError:
        raise NoDevice(
            "the package for %s is not installed: leave HYBRIDLAT_CUDA unset to use ctypes" % choice
        )
