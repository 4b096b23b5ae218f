"""The wire that a process's data really took: bytes of its TCP connections, by interface."""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import psutil

LOOPBACK = "lo"
_TCP_INFO_BYTES = 136
_COUNTERS = 120  # offset of tcpi_bytes_acked and tcpi_bytes_received in linux/tcp.h, from Linux 4.1


def tcp_bytes(before: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """Count the bytes that this process's open TCP connections sent and received, by interface: in
    all, or since an earlier call gave `before`.

    Between two addresses of one host that is the loopback, whichever they are. Shared memory and
    RDMA count nothing here. An address that no interface has stands for itself.
    """
    interfaces = by_address()
    moved: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, or not connected
            if not entry.readlink().name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                ends = connection.getsockname(), connection.getpeername()
                local, remote = (_plain(end[0]) for end in ends)
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                interface = LOOPBACK if remote in interfaces else interfaces.get(local, local)
                moved[interface] += sum(struct.unpack_from("QQ", info, _COUNTERS))
    moved.subtract(before)
    return {name: count for name, count in sorted(moved.items()) if count > 0}


def by_address() -> dict[str, str]:
    """Map each address of this host to its interface."""
    interfaces = psutil.net_if_addrs().items()
    return {_plain(one.address): name for name, addresses in interfaces for one in addresses}


def of_the_host_name() -> str:
    """Name the interface of the address this host's name resolves to; '' where none here has it."""
    interfaces = by_address()
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None):
            name = _plain(str(address[0]))
            if name in interfaces or name.startswith("127."):
                return interfaces.get(name, LOOPBACK)
    return ""


def _plain(address: str) -> str:
    """Return an address without a mapping to IPv6 or a scope."""
    return address.removeprefix("::ffff:").partition("%")[0]
