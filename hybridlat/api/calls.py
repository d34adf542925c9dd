"""What every call of the front door shares: help with keywords, and an input in second place."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from hybridlat.schema.target import PRECISIONS, Target

_Call = TypeVar("_Call", bound=Callable[..., Any])
_OF_THE_TARGET = ("engine", "runtime", "backend", "precision", "dtype", *PRECISIONS)


def front_door(function: _Call) -> _Call:
    """``function``, with help for those who call it.

    A keyword that it does not have is a TypeError with the one that was meant. Where the second
    parameter is the target, the input of a PyTorch module may stand there as well.
    """
    known = tuple(inspect.signature(function).parameters)
    name = function.__qualname__.removesuffix(".__init__")
    takes_input = known[1:3] == ("target", "input")

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for word in keywords:
            if word not in known:
                hint = _meant(word, known)
                raise TypeError(f"{name}() got an unexpected keyword argument {word!r}; {hint}")
        if takes_input and len(args) > 1 and not isinstance(args[1], str | Target | None):
            source, example, *others = args
            args, keywords = (source, *others), {"input": example, **keywords}
        if len(args) > 1 and known[1] in keywords:
            raise TypeError(f"{name}() got {known[1]} twice: give several networks as one list")
        return function(*args, **keywords)

    return cast(_Call, call)


def _meant(word: str, known: tuple[str, ...]) -> str:
    if word in _OF_THE_TARGET:
        return f"the {word} is part of target, as in target='l4/tensorrt/fp16'"
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"choose among {', '.join(known)}"
