"""Calls as another user of the machine, for what only root can test."""

import os

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def as_another_user(call):
    """Make the call in a process of another user. Return the error that it raised as "NAME: text", or ""."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        said = b""
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            call()
        except Exception as error:  # noqa: BLE001  told to the parent
            said = f"{type(error).__name__}: {error}".encode()
        os.write(writing, said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said
