"""The hosts of a job: --hosts, --hostfile and -N, and the options of each launcher that they become."""

from __future__ import annotations

import argparse
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from pyshmem.timelines.report.units import whole

from .launchers import LaunchError

_HOST = re.compile(r"(?P<name>[\w.-]+)(?::(?P<pes>\d+))?$")
_WANTED = "host names, each with the number of its PEs if they differ: node1,node2 or node1:3,node2:1"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this module."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--hosts", metavar="LIST", help="run on these hosts: node1,node2 or node1:3,node2:1")
    where.add_argument("--hostfile", metavar="FILE", help="the hosts, one a line: node1, node1:3 or node1 slots=3")
    parser.add_argument("-N", dest="per_node", type=whole, metavar="PES", help="number of PEs on each host")


def words(options: argparse.Namespace, launcher: str) -> list[str]:
    """Return the launcher's options for the hosts. Errors: LaunchError."""
    names, counts = _places(options)
    if not names:
        return _on_each(options.per_node, launcher) if options.per_node else []
    placed = ",".join(f"{name}:{count}" for name, count in zip(names, counts, strict=True))
    if launcher == "intelmpi":  # it ignores the numbers
        each = [name for name, count in zip(names, counts, strict=True) for _ in range(count)]
        return ["-hosts", ",".join(each), "-ppn", "1"]
    if launcher != "srun":
        return ["-hosts" if launcher == "mpich" else "--host", placed]
    if len(set(counts)) > 1:
        raise LaunchError(f"--hosts: got {placed}; expected equally many PEs on each host with srun")
    return [f"--nodes={len(names)}", f"--nodelist={','.join(names)}", f"--ntasks-per-node={counts[0]}"]


def unknown(options: argparse.Namespace) -> Iterator[str]:
    """Say which of the hosts have no address here. The launcher's ssh may know them by other names."""
    option = "--hostfile" if options.hostfile else "--hosts"
    for name in dict.fromkeys(name for name, _ in _listed(options)):
        try:
            socket.getaddrinfo(name, None)
        except OSError as error:
            yield f"{option}: got {name}, whose address is not found: {error.strerror}; expected hosts that this one reaches"


def _on_each(pes: int, launcher: str) -> list[str]:
    """Return the options for ``pes`` PEs on each host of the allocation."""
    if launcher == "openmpi":
        raise LaunchError("-N: got no --hosts, which needs Open MPI: pyshmemrun names each host with its PEs")
    return ["-ppn", str(pes)] if launcher in ("mpich", "intelmpi") else [f"--ntasks-per-node={pes}"]


def _places(options: argparse.Namespace) -> tuple[list[str], list[int]]:
    """Return the hosts and the PEs of each."""
    given = _listed(options)
    if not given:
        return [], []
    per_host = options.per_node or -(-options.np // len(given))
    counts = [count or per_host for _, count in given]
    if sum(counts) < options.np:
        raise LaunchError(f"--hosts: got room for {sum(counts)} PEs; expected room for the {options.np} of -n")
    return [name for name, _ in given], counts


def _listed(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return (host, PEs or 0) as the options list them."""
    if options.hostfile:
        try:
            lines = Path(options.hostfile).read_text().splitlines()
        except (OSError, ValueError) as error:  # of a file, or of what it has
            reason = getattr(error, "strerror", None) or error
            raise LaunchError(
                f"--hostfile: got {options.hostfile!r}: {reason}; expected a file of host names"
            ) from error
        texts = [re.sub(r"\s+slots\s*=\s*", ":", line.partition("#")[0].strip()) for line in lines]
        return [_host("--hostfile", text) for text in texts if text]
    return [_host("--hosts", text) for text in (options.hosts or "").split(",") if options.hosts]


def _host(option: str, text: str) -> tuple[str, int]:
    found = _HOST.match(text.strip())
    if not found:
        raise LaunchError(f"{option}: got {text!r}; expected {_WANTED}")
    return found["name"], int((found["pes"] or "0")[:9])
