"""The wire that a process's data really took: bytes of its TCP connections, by interface."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

LOOPBACK = "lo"
_TCP_INFO_BYTES = 136
_COUNTERS = 120  # offset of tcpi_bytes_acked and tcpi_bytes_received in linux/tcp.h, from Linux 4.1
_SIOCGIFADDR = 0x8915  # linux/sockios.h


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
                local, remote = map(_plain, (connection.getsockname(), connection.getpeername()))
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                interface = LOOPBACK if remote in interfaces else interfaces.get(local, local)
                moved[interface] += sum(struct.unpack_from("QQ", info, _COUNTERS))
    moved.subtract(before)
    return {name: count for name, count in sorted(moved.items()) if count > 0}


def by_address() -> dict[str, str]:
    """Map each address of this host to its interface."""
    interfaces = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # it has no IPv4 address
                request = struct.pack("256s", name.encode())
                answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
                interfaces[socket.inet_ntoa(answer[20:24])] = name
    with suppress(OSError):  # a kernel without IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            interfaces[socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))] = name
    return interfaces


def of_the_host_name() -> str:
    """Name the interface of the address this host's name resolves to; '' where none here has it."""
    interfaces = by_address()
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None):
            if (interface := interfaces.get(_plain(address))) is not None:
                return interface
            if _plain(address).startswith("127."):
                return LOOPBACK
    return ""


def _plain(address: Sequence[object]) -> str:
    """Return the host's part of a socket's address, without a mapping to IPv6 or a scope."""

    return str(address[0]).removeprefix("::ffff:").partition("%")[0]
