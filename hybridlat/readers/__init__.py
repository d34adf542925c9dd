"""Readers of what users of an engine have already: the exports of trtexec."""
