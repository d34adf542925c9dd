"""Every error that hybridlat raises on purpose, each class with its exit code.

A message is one sentence that names the value, and where there is a choice or a fix, names those.
"""

LONGEST_MESSAGE = 800


class HybridlatError(Exception):
    """Root of the tree; ``exit_code`` is what the command line ends with."""

    exit_code = 2

    def __str__(self) -> str:
        """One line that a terminal shows as it is, whatever names a file brought into it."""
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in super().__str__())
        if len(text) > LONGEST_MESSAGE:
            text = f"{text[: LONGEST_MESSAGE // 2]} … {text[3 - LONGEST_MESSAGE // 2 :]}"
        return text


class InputError(HybridlatError):
    """The user's input is at fault."""


class NetworkError(InputError):
    """A network file cannot be read, or what it describes makes no sense."""


class TargetError(InputError):
    """A target is not written as ``device/runtime/precision[/threads]``, or is not known."""


class StoreError(InputError):
    """A store, a pack or a record cannot be read, or is damaged."""


class UnavailableError(HybridlatError):
    """What is asked for cannot be had on this machine."""

    exit_code = 3


class BackendUnavailable(UnavailableError):
    """The engine, its driver or its device is missing."""


class MissingExtra(UnavailableError):
    """An optional package is not installed: raised with its name, the extra and what needs it."""

    def __str__(self) -> str:
        package, extra, purpose = self.args
        return (
            f"{purpose} needs the package {package!r}: install it with "
            f'`pip install ".[{extra}]"` in a clone of hybridlat'
        )


class MeasurementError(HybridlatError):
    """One cell or network could not be measured."""

    exit_code = 3


class TrackingError(HybridlatError):
    """The tracking server or file cannot be used."""
