"""Which board this is: what must be the same for two results to belong together."""

import hashlib
import platform
import subprocess
from typing import Dict

_SAME = (
    "runner", "engine", "engine_version", "gpu", "model", "uuid", "driver", "jetpack",
    "power_mode", "power_limit_w", "max_sm_mhz", "settings",
)  # fmt: skip


def board_id(facts: Dict[str, str]) -> str:
    """16 hex digits that name device, driver, engine version, runner and power mode together."""
    text = "\n".join("%s=%s" % (key, facts.get(key, "")) for key in _SAME)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def board_model() -> str:
    """The board's own name where its system has one: a Jetson's, whose GPU has but a chip's."""
    return _first_line("/proc/device-tree/model")


def system_facts() -> Dict[str, str]:
    """What the system tells of the board: model, JetPack's release, power mode, kernel."""
    facts = {"system": "%s %s %s" % (platform.system(), platform.release(), platform.machine())}
    model = board_model()
    if model:
        facts["model"] = model
    release = _first_line("/etc/nv_tegra_release")
    if release:
        facts["jetpack"] = release
    mode = _run(["nvpmodel", "-q"])
    if mode:
        facts["power_mode"] = " ".join(mode.split())
    return facts


def difference(old: Dict[str, str], new: Dict[str, str]) -> str:
    """The facts that make two boards different, for a person."""
    changed = [
        "%s %r then, %r now" % (key, old.get(key, ""), new.get(key, ""))
        for key in _SAME
        if old.get(key, "") != new.get(key, "")
    ]
    return "; ".join(changed) or "its identity was written by another version"


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as source:
            text = source.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.split("\n")[0].strip("\0 \t\r")


def _run(command: "list[str]") -> str:
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        out, _ = process.communicate(timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return out.decode("utf-8", "replace") if process.returncode == 0 else ""
