"""The addresses at which far PEs reach this PE: those of one network that all nodes share."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from ipaddress import IPv4Interface
from pathlib import Path
from typing import NamedTuple

from pyshmem.base.encoding import passed
from pyshmem.base.environment import read
from pyshmem.base.errors import ArgumentError, UnreachableError, refuse

_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFNETMASK = 0x8913, 0x8915, 0x891B
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40


@passed
class Interface(NamedTuple):
    """A network interface that is up and has an IPv4 address."""

    name: str
    address: str
    network: str
    mbits: int  # its speed; 0 if unknown


def interfaces() -> list[Interface]:
    """Return the interfaces of this host, without the loopback, the fastest first."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                (flags,) = struct.unpack("H", _ask(probe, _SIOCGIFFLAGS, name)[:2])
                address, mask = (
                    socket.inet_ntoa(_ask(probe, what, name)[4:8]) for what in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
            except OSError:  # it has no IPv4 address
                continue
            if flags & _UP and flags & _RUNNING and not flags & _LOOPBACK:
                found.append(Interface(name, address, str(IPv4Interface(f"{address}/{mask}").network), _mbits(name)))
    return sorted(found, key=lambda each: -each.mbits)


def _ask(probe: socket.socket, what: int, name: str) -> bytes:
    """Return the union that follows the name in struct ifreq. Errors: OSError."""
    return fcntl.ioctl(probe, what, struct.pack("256s", os.fsencode(name)[:15]))[16:]


def _mbits(name: str) -> int:
    try:
        return max(int(Path(f"/sys/class/net/{name}/speed").read_text()), 0)
    except (OSError, ValueError):  # a virtual interface
        return 0


def offered() -> list[Interface]:
    """Return the interfaces that this PE may use. Errors: ArgumentError if PYSHMEM_INTERFACE names none of them."""
    wanted, here = read("PYSHMEM_INTERFACE"), interfaces()
    if wanted and wanted not in [each.name for each in here]:
        names = ", ".join(each.name for each in here) or "none"
        refuse(
            ArgumentError, "init", "PYSHMEM_INTERFACE", repr(wanted), f"an interface with an IPv4 address, here {names}"
        )
    return [each for each in here if not wanted or each.name == wanted]


def choose(offers: list[list[Interface]], hosts: tuple[str, ...]) -> list[str]:
    """Return the address of each PE in the first network of PE 0 that all PEs share.

    A network in which two hosts have the same address is private to each host, such as that of its containers. If the user
    has named one interface on each host, the networks may differ.
    Errors: UnreachableError.
    """
    if all(len(offer) == 1 for offer in offers):
        return [offer[0].address for offer in offers]
    for network in [each.network for each in offers[0]]:
        addresses = [next((i.address for i in offer if i.network == network), "") for offer in offers]
        if "" not in addresses and len(set(addresses)) == len(set(zip(hosts, addresses, strict=True))):
            return addresses
    names = {f"{host}: {', '.join(f'{i.name} {i.network}' for i in o)}" for host, o in zip(hosts, offers, strict=True)}
    wants = "a network that all nodes share, or an interface for each in PYSHMEM_INTERFACE"
    refuse(UnreachableError, "init", "network", "; ".join(sorted(names)), wants)
