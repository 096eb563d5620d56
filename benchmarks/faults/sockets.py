"""Shuts connections between this process and another, as a network that breaks does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_ESTABLISHED, _LISTEN = "01", "0A"


def shut_connections_to(pid: int) -> int:
    """Shut the TCP connections of this process to ports that `pid` listens on; how many they were."""
    theirs = _sockets_of(pid)
    ports = {local for inode, (state, local, _) in _table().items() if state == _LISTEN and inode in theirs}
    shut = 0
    table = _table()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            inode = os.readlink(f"/proc/self/fd/{descriptor}").removeprefix("socket:[").rstrip("]")
        except FileNotFoundError:
            continue
        state, _, remote = table.get(inode, ("", 0, 0))
        if state == _ESTABLISHED and remote in ports:
            with socket.socket(fileno=os.dup(int(descriptor))) as sock:
                sock.shutdown(socket.SHUT_RDWR)
            shut += 1
    return shut


def _sockets_of(pid: int) -> set[str]:
    found: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target.removeprefix("socket:[").rstrip("]"))
    return found


def _table() -> dict[str, tuple[str, int, int]]:
    """Inode -> state, local port, remote port."""
    found: dict[str, tuple[str, int, int]] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
            found[fields[9]] = (fields[3], local, remote)
    return found
