"""A GPU through its driver's libraries: CUDA in five calls, and sensors by NVML or from files.

``CtypesCuda`` needs libcuda.so.1 alone; ``PyCuda`` (HYBRIDLAT_CUDA=pycuda) goes through pycuda.
The driver is loaded before TensorRT, whose runtime takes the process down where there is none.
"""

import ctypes
import glob
import importlib
import os
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import DeviceLost, EngineError, NoDevice
from .journal import first_line

Work = Callable[[], None]

_NON_BLOCKING = 1
_CAPTURE_THREAD_LOCAL = 1
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0
_JETSON_GPUS = ("gv11b", "gp10b", "ga10b", "gpu", "gb10b")
# Statuses after which the context answers nothing else: no device any more, illegal address,
# launch time-out, assert, hardware faults, launch failure, uncorrectable memory, a driver's crash.
_FATAL = frozenset([4, 46, 100, 101, 201, 214, 700, 702, 709, 710, *range(714, 720), 999])


def find_driver() -> Any:
    """The driver library, not yet initialised; NoDevice where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoDevice("there is no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded)")


def load_driver() -> Any:
    """The loaded and initialised driver library; NoDevice where there is none.

    Kernels are loaded when they are first used (CUDA 11.7 and later): it starts faster so.
    """
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    library = find_driver()
    status = library.cuInit(0)
    if status:
        raise NoDevice("the NVIDIA driver does not start (cuInit returned %d)" % status)
    count = ctypes.c_int(0)
    if library.cuDeviceGetCount(ctypes.byref(count)) or count.value < 1:
        raise NoDevice("the NVIDIA driver sees no GPU on this machine")
    return library


_streams: List[Any] = []


class CtypesCuda(object):
    """The driver API through ctypes, on the primary context of the first device."""

    def __init__(self) -> None:
        self._lib = load_driver()
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        # One stream for the life of the process: engines may outlive the models they belong to.
        if not _streams:
            stream = ctypes.c_void_p()
            self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
            _streams.append(stream)
        self._stream = _streams[0]
        self.stream = int(self._stream.value or 0)
        self._memory: List[int] = []
        self._graphs: List[Any] = []
        self._events: List[Any] = []

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._lib, name, None)
        if function is None:
            raise EngineError("this driver is too old: it has no %s" % name)
        status = function(*arguments)
        if status:
            kind = DeviceLost if status in _FATAL else EngineError
            why = " (out of memory)" if status == 2 else ""
            raise kind("CUDA refused %s with status %d%s" % (name, status, why))

    def allocate(self, size: int) -> int:
        """Device memory of at least ``size`` bytes; its address."""
        address = ctypes.c_void_p()
        size = max(int(size), 256)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        self._memory.append(int(address.value or 0))
        self._call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
        return self._memory[-1]

    def upload(self, address: int, data: bytes) -> None:
        source, size = ctypes.c_char_p(data), ctypes.c_size_t(len(data))
        self._call("cuMemcpyHtoD_v2", ctypes.c_void_p(address), source, size)
        self._call("cuCtxSynchronize")

    def capture(self, enqueue: Work) -> Work:
        """What ``enqueue`` puts on the stream as a graph, to replay. Raises EngineError."""
        graph = ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self._stream, ctypes.c_int(_CAPTURE_THREAD_LOCAL))
        try:
            enqueue()
        finally:  # also after a failure: a stream left capturing refuses all further work
            status = self._lib.cuStreamEndCapture(self._stream, ctypes.byref(graph))
        if status or not graph.value:
            raise EngineError("CUDA could not capture the work as a graph (status %d)" % status)
        executable, flags = ctypes.c_void_p(), ctypes.c_ulonglong(0)
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, flags)
        self._lib.cuGraphDestroy(graph)
        self._graphs.append(executable)
        return lambda: self._call("cuGraphLaunch", executable, self._stream)

    def elapsed_us(self, works: List[Work], during: Optional[Work] = None) -> List[float]:
        """Microseconds of each work, enqueued back to back; ``during`` is called while they run."""
        while len(self._events) <= len(works):
            event = ctypes.c_void_p()
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
            self._events.append(event)
        events = self._events[: len(works) + 1]
        self._call("cuEventRecord", events[0], self._stream)
        for event, work in zip(events[1:], works):
            work()
            self._call("cuEventRecord", event, self._stream)
        if during is not None:
            during()
        self._call("cuEventSynchronize", events[-1])
        times_us = []
        milliseconds = ctypes.c_float()
        for before, after in zip(events, events[1:]):
            self._call("cuEventElapsedTime", ctypes.byref(milliseconds), before, after)
            times_us.append(float(milliseconds.value) * 1e3)
        return times_us

    def release(self) -> None:
        """Give back every allocation, graph and event that this object made."""
        self._lib.cuCtxSynchronize()
        for executable in self._graphs:
            self._lib.cuGraphExecDestroy(executable)
        for address in self._memory:
            self._lib.cuMemFree_v2(ctypes.c_void_p(address))
        for event in self._events:
            self._lib.cuEventDestroy_v2(event)
        self._graphs, self._memory, self._events = [], [], []

    def describe(self) -> Dict[str, str]:
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, ctypes.c_int(128), self._device)
        bus = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", bus, ctypes.c_int(32), self._device)
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        return {
            "gpu": name.value.decode("utf-8", "replace"),
            "pci_bus": bus.value.decode("ascii", "replace"),
            "cuda_driver": "%d.%d" % (version.value // 1000, version.value % 1000 // 10),
        }


class PyCuda(object):
    """The same through pycuda, which has no graphs: every inference is enqueued."""

    def __init__(self) -> None:
        load_driver()
        self._driver = importlib.import_module("pycuda.driver")
        self._driver.init()
        self._context = self._driver.Device(0).retain_primary_context()
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
        raise EngineError("pycuda has no CUDA graphs")

    def elapsed_us(self, works: List[Work], during: Optional[Work] = None) -> List[float]:
        events = [self._driver.Event() for _ in range(len(works) + 1)]
        events[0].record(self._stream)
        for event, work in zip(events[1:], works):
            work()
            event.record(self._stream)
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
        return {"gpu": device.name(), "pci_bus": device.pci_bus_id()}


Cuda = Union[CtypesCuda, PyCuda]


def open_cuda() -> Cuda:
    """The CUDA that HYBRIDLAT_CUDA names; ctypes, which needs nothing, without it."""
    choice = os.environ.get("HYBRIDLAT_CUDA") or "ctypes"
    makers: Dict[str, Callable[[], Cuda]] = {"ctypes": CtypesCuda, "pycuda": PyCuda}
    if choice not in makers:
        raise NoDevice("%r is no way to reach CUDA: choose ctypes or pycuda" % choice)
    try:
        return makers[choice]()
    except ImportError:
        raise NoDevice("pycuda is not installed: leave HYBRIDLAT_CUDA unset to use ctypes")


class Sensors(object):
    """Reads what this machine lets anyone read; never sets anything."""

    def __init__(self, pci_bus: str = "") -> None:
        self._lib: Any = None
        self._handle = ctypes.c_void_p()
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0 and self._find(library, pci_bus) == 0:
                self._lib = library
        # What reads a sensor, and its unit in ours.
        self._sensors: Dict[str, Tuple[Callable[[], Optional[int]], float]] = {
            "sm_mhz": (partial(_integer, _clock_file()), 1e-6),
            "temperature_c": (partial(_integer, _heat_file()), 1e-3),
        }
        if self._lib is not None:
            self._sensors = {
                "sm_mhz": (partial(self._number, "ClockInfo", _SM_CLOCK), 1.0),
                "temperature_c": (partial(self._number, "Temperature", _GPU_TEMPERATURE), 1.0),
                "power_w": (partial(self._number, "PowerUsage"), 1e-3),
            }

    def _find(self, library: Any, pci_bus: str) -> int:
        out = ctypes.byref(self._handle)
        if pci_bus:  # NVML counts GPUs otherwise than CUDA does: ask for the same bus
            by_bus = library.nvmlDeviceGetHandleByPciBusId_v2
            if by_bus(ctypes.c_char_p(pci_bus.encode()), out) == 0:
                return 0
        return int(library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), out))

    def _number(self, what: str, *which: int) -> Optional[int]:
        value = ctypes.c_uint()
        ask = getattr(self._lib, "nvmlDeviceGet" + what)
        status = ask(self._handle, *map(ctypes.c_int, which), ctypes.byref(value))
        return None if status else int(value.value)

    def read(self) -> Dict[str, float]:
        """``sm_mhz``, ``temperature_c``, ``power_w``: those that can be read now."""
        values = {key: (ask(), unit) for key, (ask, unit) in self._sensors.items()}
        return {key: value * unit for key, (value, unit) in values.items() if value is not None}

    def describe(self) -> Dict[str, str]:
        """The driver, and what tells this device from others like it; empty without NVML."""
        if self._lib is None:
            return {}
        driver, uuid = (ctypes.create_string_buffer(96) for _ in range(2))
        size = ctypes.c_uint(96)
        self._lib.nvmlSystemGetDriverVersion(driver, size)
        self._lib.nvmlDeviceGetUUID(self._handle, uuid, size)
        limit_mw = self._number("EnforcedPowerLimit")
        return {
            "driver": driver.value.decode("ascii", "replace"),
            "uuid": uuid.value.decode("ascii", "replace"),
            "power_limit_w": "" if limit_mw is None else "%g" % (limit_mw / 1e3),
        }


def _clock_file() -> str:
    """Where a Jetson's GPU shows its clock in Hz; empty elsewhere."""
    patterns = ["/sys/class/devfreq/*%s*/cur_freq" % name for name in _JETSON_GPUS]
    return next((path for pattern in patterns for path in sorted(glob.glob(pattern))), "")


def _heat_file() -> str:
    """Where it shows its temperature in thousandths of a degree; empty elsewhere."""
    zones = sorted(glob.glob("/sys/class/thermal/thermal_zone*/"))
    of_gpus = (zone for zone in zones if first_line(zone + "type").lower().startswith("gpu"))
    return next((zone + "temp" for zone in of_gpus), "")


def _integer(path: str) -> Optional[int]:
    text = first_line(path)
    return int(text) if text.lstrip("-").isdigit() else None
