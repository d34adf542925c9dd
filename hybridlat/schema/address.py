"""Addresses as they may be shown and kept."""

from __future__ import annotations

import re


def without_password(url: str) -> str:
    """The same URL without the password before its host, or among what it asks for."""
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    if not user or user.startswith("/"):  # the path of a file
        return url
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{tail}"
