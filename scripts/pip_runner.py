"""Runs pip with a log file, short progress lines, and failures that say what to do.

Knows how pip talks; knows nothing of which packages there are. Standard library only, no
syntax newer than Python 3.7.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from pathlib import Path
from typing import IO

QUIET_S = 20.0
"""After this long without a word from pip, say that it still works."""

NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeout|ReadTimeout"
    r"|ProxyError|SSLError|Connection (refused|reset|aborted)|Network is unreachable|RemoteDisconnected"
    r"|Retrying \("
)
DISK_FULL = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")
NOT_THERE = re.compile(
    r"No matching distribution found for (\S+)|Could not find a version that satisfies .*?(\S+)"
)


class PipFailed(Exception):
    """pip could not do it; the message says why and what to do.

    `clean` tells whether the environment is still sound: nothing was half unpacked.
    """

    def __init__(self, message: str, clean: bool) -> None:
        super().__init__(message)
        self.clean = clean


def pip_environment() -> dict[str, str]:
    """The user's environment, index and proxy settings kept, minus what would install elsewhere."""
    env = dict(os.environ)
    for name in (
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
        "PIP_ROOT",
        "__PYVENV_LAUNCHER__",
    ):
        env.pop(name, None)
    return dict(env, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PYTHONNOUSERSITE="1")


def pip_install(python: Path, arguments: list[str], log: Path, total: int) -> None:
    """`python -m pip install ARGUMENTS`, all output to `log`, progress to the terminal.

    Nothing is compiled to bytecode: pip would use one core for it. `total` is the number of packages to
    count to. Raises PipFailed.
    """
    command = [str(python), "-m", "pip", "install", "--progress-bar", "off", "--no-compile", *arguments]
    with log.open("ab") as sink:
        sink.write(("\n$ " + " ".join(command) + "\n").encode())
        start = sink.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=pip_environment(),
            close_fds=False,  # an inherited lock tells others that pip is still at work
        )
        try:
            _follow(process, sink, total)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.wait() != 0:
        raise failure(log.read_bytes()[start:].decode("utf-8", "replace"), log)


def _follow(process: subprocess.Popen[bytes], sink: IO[bytes], total: int) -> None:
    """Copy pip's output to the log and say how far it is."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    began = spoke = time.monotonic()
    count, rest = 0, b""
    while True:
        ready = select.select([descriptor], [], [], QUIET_S)[0]
        if not ready:
            print(f"      still at it after {time.monotonic() - began:.0f} s", flush=True)
            continue
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return
        sink.write(chunk)
        sink.flush()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in (raw.decode("utf-8", "replace").strip() for raw in lines):
            if line.startswith("Collecting "):
                count += 1
                if time.monotonic() - spoke > 5:
                    spoke = time.monotonic()
                    print(f"      {min(count, total)}/{total} {line.split()[1]}", flush=True)
            elif line.startswith("Installing collected packages:"):
                num = line.count(",") + 1
                print(f"      unpacking {num} package{'s' if num > 1 else ''}", flush=True)
            elif "Retrying (" in line:
                print("      the package index does not answer, trying again", flush=True)


def failure(output: str, log: Path) -> PipFailed:
    """What pip's output means, in words for a person."""
    unpacking = "Installing collected packages:" in output
    if DISK_FULL.search(output):
        return PipFailed(
            "the disk filled up. Free some space (about 5 GB is needed) and run make again.", False
        )
    if NO_NETWORK.search(output):
        return PipFailed(
            "the package index cannot be reached. Check the network, the proxy (HTTPS_PROXY) and pip's\n"
            f"settings (pip config list), then run make again. pip's own words are in {log}",
            not unpacking,
        )
    match = NOT_THERE.search(output)
    if match:
        return PipFailed(
            f"the package index has no {match.group(1) or match.group(2)} for this Python and machine\n"
            f"(the pins are for x86-64 Linux). pip's own words are in {log}",
            not unpacking,
        )
    tail = "\n".join("    " + line for line in output.strip().splitlines()[-8:])
    return PipFailed(f"pip failed; the end of {log}:\n{tail}", not unpacking)
