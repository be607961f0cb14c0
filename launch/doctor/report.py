"""``pyshmem doctor --report FILE``: what doctor prints, and files that are added, without names of people and hosts."""

from __future__ import annotations

import os
import platform
import pwd
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

DRIVERS = ("/opt/rocm/.info/version", "/sys/module/amdgpu/version", "/proc/driver/nvidia/version")
_HOMES = re.compile(r"(/home|/users|/Users)/[^/\s:'\"]+")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")


def write(path: Path, command: Sequence[str], added: Sequence[Path]) -> int:
    """Run the command, print what it prints, and write all of it to ``path``. Return its exit status."""
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=sys.prefix) as job:
        for line in job.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    parts = [("pyshmem doctor", "".join(lines)), *_drivers()]
    parts += [(each.name, each.read_text(errors="replace")) for each in added]
    text = "".join(f"== {title}\n{body.rstrip()}\n\n" for title, body in parts)
    path.write_text(without_names(text))
    print(f"doctor: the report is in {path}; read it before you send it", flush=True)
    return job.returncode


def without_names(text: str) -> str:
    """Return the text with HOST, USER and HOME in place of this host's and this user's names and folders."""
    home = os.path.expanduser("~")
    text = text.replace(f"{home}/", "HOME/") if home != "/" else text
    for name, instead in sorted(_names().items(), key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", instead, text)
    return _MAIL.sub("ADDRESS", _HOMES.sub(r"\1/USER", text))


def _names() -> dict[str, str]:
    """The names of this host and of the user, but for root, and what stands for each."""
    hosts = {platform.node(), socket.getfqdn(), platform.node().split(".")[0]} - {"", "localhost"}
    found = dict.fromkeys(hosts, "HOST")
    people = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    with suppress(KeyError):  # a container may have no entry for this user
        entry = pwd.getpwuid(os.getuid())
        people |= {entry.pw_name, entry.pw_gecos.split(",")[0]}
    return found | dict.fromkeys(people - {"", "root"}, "USER")


def _drivers() -> Iterator[tuple[str, str]]:
    """The versions of ROCm and of the kernel's drivers, of those that this machine has."""
    for path in map(Path, DRIVERS):
        if path.is_file():
            yield str(path), path.read_text(errors="replace")
