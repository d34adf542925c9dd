"""Clock, temperature and power while something runs: NVML, or a Jetson's files, or nothing."""

import ctypes
import glob
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

from .journal import first_line

_SM_CLOCK = 1
_GPU_TEMPERATURE = 0
_JETSON_GPUS = ("gv11b", "gp10b", "ga10b", "gpu", "gb10b")
Reading = Dict[str, float]


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

    def read(self) -> Reading:
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
    patterns = ["/sys/class/devfreq/*%s*/cur_freq" % name for name in _JETSON_GPUS]
    return next((path for pattern in patterns for path in sorted(glob.glob(pattern))), "")


def _heat_file() -> str:
    kinds = sorted(glob.glob("/sys/class/thermal/thermal_zone*/type"))
    of_gpus = (path for path in kinds if first_line(path).lower().startswith("gpu"))
    return next((path[: -len("type")] + "temp" for path in of_gpus), "")


def _integer(path: str) -> Optional[int]:
    text = first_line(path)
    return int(text) if text.lstrip("-").isdigit() else None
