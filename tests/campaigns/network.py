"""Hosts on this machine: network namespaces, joined by a process that forwards their frames.

The only network of a host is a TAP device. The other end of the device is open in the process of
this module, which delays every frame, loses some at random and can cut a host off. That process
also removes everything when the process that started it closes the connection or ends. It needs
root, the command ``ip`` and ``/dev/net/tun``; no device appears outside the namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

ETHERNET: Final = 0x0002 | 0x1000  # IFF_TAP | IFF_NO_PI
SET_DEVICE: Final = 0x400454CA  # TUNSETIFF
NETWORK_NAMESPACE: Final = 0x40000000  # CLONE_NEWNET
FRAME_BYTES: Final = 2048
LONGEST_WAIT: Final = 1.0
PROBES: Final = 9
CLOSED_PORT: Final = 9


def missing() -> str:
    """What this machine lacks, as one sentence; empty if nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root: run this as root, for example with sudo"
    if shutil.which("ip") is None:
        return "the command 'ip' is missing: install the package iproute2"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun is missing: load the kernel module tun"
    name = f"esbench-{os.getpid()}-probe"
    if subprocess.run(
        ["ip", "netns", "add", name], check=False, stderr=subprocess.DEVNULL
    ).returncode:
        return "root may not make network namespaces here: run this outside a container"
    _ip("netns", "delete", name)
    return ""


@final
class Network:
    """Hosts 0, 1, ... with the addresses 10.77.0.1, 10.77.0.2, ...; ends with this process."""

    def __init__(self, hosts: int) -> None:
        self.addresses = [f"10.77.0.{number + 1}" for number in range(hosts)]
        self.names = [f"esbench-{os.getpid()}-{number}" for number in range(hosts)]
        self._process = subprocess.Popen(
            [sys.executable, __file__, *self.names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the campaign, which then closes the network
        )
        self._state: dict[str, Any] = {"delay": 0.0, "loss": 0.0, "cut": []}
        self.change()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def change(self, **state: Any) -> None:
        """Set the ``delay`` of each way [s], the ``loss`` of frames, and the hosts that are cut."""
        self._state |= state
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._state) + "\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise SystemExit("the network could not be set up")

    def command(self, host: int, *command: str, private: Path | None = None) -> list[str]:
        """A command that runs on a host; it has the folder ``private`` for itself."""
        inside = ["ip", "netns", "exec", self.names[host]]
        if private is None:
            return [*inside, *command]
        mount = f'mount -t tmpfs none {private} && exec "$@"'
        return [*inside, "sh", "-c", mount, "sh", *command]

    def enter(self, host: int) -> None:
        """Let this thread, and the threads and processes that it starts, be on a host."""
        _enter(Path("/run/netns", self.names[host]))

    def commands(self, host: int) -> list[str]:
        """The command lines of the processes on a host, this one excepted."""
        found = []
        for pid in _processes(self.names[host], self._process.pid):
            with contextlib.suppress(OSError):  # it has ended
                found.append(Path("/proc", str(pid), "cmdline").read_text().replace("\0", " "))
        return found

    def round_trip(self, host: int) -> float:
        """The median round trip from this process to a host [s]."""
        seconds = []
        for _ in range(PROBES):
            started = time.perf_counter()
            with socket.socket() as probe:
                assert probe.connect_ex((self.addresses[host], CLOSED_PORT))
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)

    def close(self) -> None:
        """Kill the processes on all hosts and remove the hosts."""
        self._process.communicate()


def _enter(namespace: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with namespace.open() as file:
        if libc.setns(file.fileno(), NETWORK_NAMESPACE):
            raise OSError(ctypes.get_errno(), "setns")


def _processes(name: str, excepted: int) -> list[int]:
    """The processes on a host, except one and this one."""
    inode = Path("/run/netns", name).stat().st_ino
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if path.stat().st_ino == inode and int(path.parts[2]) not in {excepted, os.getpid()}:
                found.append(int(path.parts[2]))
        except OSError:  # it has ended
            continue
    return found


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _add(name: str, number: int) -> int:
    """Make a host and move to it; returns the descriptor of its network device."""
    _ip("netns", "add", name)
    _enter(Path("/run/netns", name))
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, SET_DEVICE, struct.pack("16sH14x", b"eth0", ETHERNET))
    Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    _ip("link", "set", "lo", "up")
    _ip("link", "set", "eth0", "address", f"02:00:00:00:00:{number:02x}", "up")
    _ip("address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
    # Programs find their own address by the route to one outside, which does not answer.
    _ip("route", "add", "default", "via", "10.77.0.254")
    return device


def _remove(name: str, excepted: int) -> None:
    if not Path("/run/netns", name).exists():
        return
    while pids := _processes(name, excepted):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    subprocess.run(["ip", "netns", "delete", name], check=False)


def _targets(frame: bytes, source: int, count: int) -> Sequence[int]:
    """The hosts that a frame is for: its address ends with their number, or names all."""
    if frame[0] & 1:
        return [number for number in range(count) if number != source]
    return [frame[5]] if frame[5] < count else []


def _write(device: int, frame: bytes) -> None:
    with contextlib.suppress(BlockingIOError):  # the queue of the host is full: it is lost
        os.write(device, frame)


def forward(devices: Sequence[int]) -> None:
    """Forward frames until standard input ends, whose lines change the state."""
    chance, state, rest = random.Random(0), dict[str, Any](), b""
    waiting = deque[tuple[float, int, bytes]]()
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            _, target, frame = waiting.popleft()
            _write(devices[target], frame)
        pause = min(waiting[0][0] - now, LONGEST_WAIT) if waiting else LONGEST_WAIT
        for source in select.select([0, *devices], [], [], pause)[0]:
            if source == 0:
                *lines, rest = (rest + (read := os.read(0, 65536))).split(b"\n")
                if not read:
                    return
                for line in lines:
                    state = json.loads(line)
                    print(flush=True)
                continue
            number, frame = devices.index(source), os.read(source, FRAME_BYTES)
            for target in _targets(frame, number, len(devices)):
                is_cut = {number, target} & set(state["cut"])
                if not is_cut and chance.random() >= state["loss"]:
                    waiting.append((time.monotonic() + state["delay"], target, frame))


def main(names: Sequence[str]) -> None:
    # Killed by neither signal, so that the hosts are removed: the end of its input ends it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    try:
        forward([_add(name, number) for number, name in enumerate(names)])
    finally:
        for name in names:
            _remove(name, parent)


if __name__ == "__main__":
    main(sys.argv[1:])
