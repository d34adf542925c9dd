"""Files and documents of others, read strictly within bounds; own files, written whole or not."""

import errno
import logging
import os
import platform
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import TypeAlias, TypeVar

from hybridlat.errors import HybridlatError
from hybridlat.schema.shown import phrase_of

StrPath: TypeAlias = str | os.PathLike[str]
MOST_BYTES = 256 << 20
"""Of a file that is read at once, unless its reader says otherwise."""
S = TypeVar("S")
T = TypeVar("T")


def open_regular(path: StrPath) -> BufferedReader:
    """A regular file, opened to be read; OSError for a folder, a device or a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file: copy it to one", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def read_bytes(path: StrPath, most_bytes: int = MOST_BYTES) -> bytes:
    """All of a regular file of up to ``most_bytes``; OSError for anything else."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > most_bytes:
            words = f"it is larger than {most_bytes / (1 << 20):,.0f} MiB"
            raise OSError(errno.EFBIG, words, os.fspath(path))
        return file.read()


def decode(text: str | bytes, form: type[T]) -> T:
    """A JSON document as ``form``, any type that msgspec knows; ValueError names what is wrong."""
    import msgspec  # help writes files, and reads no document

    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(phrase_of(error)) from None


def decode_or_none(text: str | bytes | None, form: type[T]) -> T | None:
    """The same for caches: None where there is no document, or a damaged one."""
    with suppress(ValueError):
        return None if text is None else decode(text, form)
    return None


def listing(folder: Path, pattern: str) -> list[Path]:
    """What in a folder matches, sorted; nothing, with a warning, where it cannot be read."""
    try:
        files = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        warn_once(f"{folder} is passed over, it cannot be read ({error.strerror})")
        return []
    return [file for file in files if fnmatchcase(file.name, pattern)]


@cache
def warn_once(sentence: str) -> None:
    """Log a warning, once a process."""
    logging.getLogger(__name__).warning("%s", sentence)


def all_readable(
    read: Callable[[S], T | None], sources: Iterable[S], seen: list[str] | None = None
) -> Iterator[T]:
    """What is read from each source that has it; damage is a warning, to ``seen`` too."""
    for source in sources:
        try:
            value = read(source)
        except HybridlatError as error:
            warn_once(str(error))
            if seen is not None and str(error) not in seen:
                seen.append(str(error))
        else:
            if value is not None:
                yield value


def is_writable(path: Path) -> bool:
    """Whether a folder can be written, or made where it is not there."""
    return os.access(next(filter(Path.exists, (path, *path.parents))), os.W_OK | os.X_OK)


def write_text(path: StrPath, text: str) -> None:
    """Write a text in UTF-8, as ``write_bytes`` does."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: StrPath, data: bytes) -> None:
    """Write them beside ``path``, then put the file there; OSError names ``path``."""
    place = Path(path).resolve()  # what a link points to is replaced, not the link
    writer = f"{os.getpid()}-{threading.get_ident()}"  # of several at once
    partial = place.with_name(f".{place.name[:50]}.{writer}.partial")
    try:
        if place.exists() and not place.is_file():  # /dev/stdout, a pipe
            place.write_bytes(data)
            return
        try:
            partial.write_bytes(data)
            if place.exists():
                shutil.copymode(place, partial)
            partial.replace(place)
        except PermissionError:  # a file may be writable in a folder that is not
            place.write_bytes(data)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), os.fspath(path)) from error


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder for a while; those that killed processes have left go first."""
    prefix = f"hybridlat-{platform.node()}-"  # containers may share a folder, and not their numbers
    sweep(prefix)
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-") as folder:
        yield Path(folder)


@cache
def sweep(prefix: str) -> None:
    """Remove the folders of processes that have died, once a process, as far as Linux tells."""
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        number, *rest = left.name.removeprefix(prefix).split("-")  # of a longer host's name more
        is_own = number.isdecimal() and len(rest) < 2
        if is_own and not Path("/proc", number).exists() and Path("/proc/1").exists():
            shutil.rmtree(left, ignore_errors=True)
