"""Clock, temperature and power while something runs: NVML, or a Jetson's files, or nothing."""

import ctypes
import glob
from typing import Any, Dict, List, Optional, Tuple

_SM_CLOCK = 1
_GPU_TEMPERATURE = 0
_JETSON_GPU = ("/sys/class/devfreq/*%s*/cur_freq", ("gv11b", "gp10b", "ga10b", "gpu", "gb10b"))
Reading = Dict[str, float]


class Sensors(object):
    """Reads what this machine lets anyone read; never sets anything."""

    def __init__(self, pci_bus: str = "") -> None:
        self._lib: Any = None
        self._handle = ctypes.c_void_p()
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            if library.nvmlInit_v2() == 0 and self._find(library, pci_bus) == 0:
                self._lib = library
        except (OSError, AttributeError):
            self._lib = None
        self._clock_file = None if self._lib else _first_file(*_JETSON_GPU)
        self._heat_file = None if self._lib else _thermal_zone()

    def _find(self, library: Any, pci_bus: str) -> int:
        out = ctypes.byref(self._handle)
        if pci_bus:  # NVML counts GPUs otherwise than CUDA does: ask for the same bus
            by_bus = library.nvmlDeviceGetHandleByPciBusId_v2
            if by_bus(ctypes.c_char_p(pci_bus.encode()), out) == 0:
                return 0
        return int(library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), out))

    def _number(self, name: str, *arguments: Any) -> Optional[int]:
        value = ctypes.c_uint()
        try:
            status = getattr(self._lib, name)(self._handle, *arguments, ctypes.byref(value))
        except AttributeError:
            return None
        return None if status else int(value.value)

    def _text(self, name: str) -> str:
        text = ctypes.create_string_buffer(96)
        try:
            function = getattr(self._lib, name)
        except AttributeError:
            return ""
        if name == "nvmlSystemGetDriverVersion":
            status = function(text, ctypes.c_uint(96))
        else:
            status = function(self._handle, text, ctypes.c_uint(96))
        return "" if status else text.value.decode("ascii", "replace")

    def read(self) -> Reading:
        """``sm_mhz``, ``temperature_c``, ``power_w``: those that can be read now."""
        reading: Reading = {}
        if self._lib is not None:
            clock = self._number("nvmlDeviceGetClockInfo", ctypes.c_int(_SM_CLOCK))
            heat = self._number("nvmlDeviceGetTemperature", ctypes.c_int(_GPU_TEMPERATURE))
            power = self._number("nvmlDeviceGetPowerUsage")
            if clock is not None:
                reading["sm_mhz"] = float(clock)
            if heat is not None:
                reading["temperature_c"] = float(heat)
            if power is not None:
                reading["power_w"] = power / 1e3
            return reading
        clock = _integer(self._clock_file)
        heat = _integer(self._heat_file)
        if clock is not None:
            reading["sm_mhz"] = clock / 1e6
        if heat is not None:
            reading["temperature_c"] = heat / 1e3
        return reading

    def describe(self) -> Dict[str, str]:
        """Driver, serial text of the device and limits; empty where there is no NVML."""
        if self._lib is None:
            return {}
        facts = {
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "uuid": self._text("nvmlDeviceGetUUID"),
        }
        limit = self._number("nvmlDeviceGetEnforcedPowerLimit")
        top = self._number("nvmlDeviceGetMaxClockInfo", ctypes.c_int(_SM_CLOCK))
        if limit is not None:
            facts["power_limit_w"] = "%g" % (limit / 1e3)
        if top is not None:
            facts["max_sm_mhz"] = str(top)
        return facts


def summary(readings: List[Reading]) -> Dict[str, float]:
    """Mean, least and most of each sensor over the readings of one visit."""
    means: Dict[str, float] = {}
    for key in ("sm_mhz", "temperature_c", "power_w"):
        values = [reading[key] for reading in readings if key in reading]
        if values:
            means[key] = round(sum(values) / len(values), 2)
            means[key + "_min"] = min(values)
            means[key + "_max"] = max(values)
    return means


def _first_file(pattern: str, names: Tuple[str, ...]) -> Optional[str]:
    for name in names:
        paths = sorted(glob.glob(pattern % name))
        if paths:
            return paths[0]
    return None


def _thermal_zone() -> Optional[str]:
    for path in sorted(glob.glob("/sys/class/thermal/thermal_zone*/type")):
        try:
            with open(path) as source:
                if source.read().strip().lower().startswith("gpu"):
                    return path[: -len("type")] + "temp"
        except OSError:
            continue
    return None


def _integer(path: Optional[str]) -> Optional[int]:
    if path is None:
        return None
    try:
        with open(path) as source:
            return int(source.read().strip())
    except (OSError, ValueError):
        return None
