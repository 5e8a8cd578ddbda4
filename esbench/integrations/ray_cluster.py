"""A Ray cluster (the extra ``ray``): the connection, its nodes, and the software of each node.

Ray is imported here only, when a cluster is used for the first time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, final

from esbench.core.cores import usable_cores
from esbench.core.errors import UsageError
from esbench.integrations.library import optional
from esbench.store.origin import Origin, changes
from esbench.store.own_code import code_here
from esbench.store.provenance import provenance

ANSWER_SECONDS: Final = 10.0  # Ray itself waits for minutes at a wrong address
LOCAL_STORE_BYTES: Final = 512 * 2**20  # of a local Ray; it holds recipes and results only
AUTH_MODE: Final = "RAY_AUTH_MODE"
AUTH_TOKEN: Final = "RAY_AUTH_TOKEN"
# The start of an HTTP/2 connection, and the type of the frame that every server answers with.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS_FRAME: Final = b"\x04"


@final
class ClusterNode(NamedTuple):
    """A living node of a cluster."""

    id: str  # Ray's; a node that joins again has another one
    host: str  # the IP address
    cores: int  # the number of CPUs that it offers to Ray; 0 for a node that runs no work


@final
class Software(NamedTuple):
    """What bits depend on, on one node: versions, the processor, and the user code of trials."""

    esbench: str
    origin: Origin
    own_code: Mapping[str, str | None]

    def difference(self, other: Software) -> str:
        """How another node differs from this one, as one phrase; empty if bits are the same."""
        if self.esbench != other.esbench:
            return f"esbench {self.esbench} here, {other.esbench} there"
        ours, others = self.origin.versions, other.origin.versions
        # A package that only one side has is a difference: a trial may need it.
        found = [
            f"{name} {ours.get(name) or 'missing'} here, {others.get(name) or 'missing'} there"
            for name in sorted({*ours, *others})
            if ours.get(name) != others.get(name)
        ]
        found += [
            f"user code {name} {mine or 'missing'} here, {theirs or 'missing'} there"
            for name, mine in self.own_code.items()
            if mine != (theirs := other.own_code.get(name))
        ]
        machine = changes(Origin(hardware=self.origin.hardware), other.origin)
        for old, new in ((" then, ", " here, "), (" now", " there")):
            machine = [text.replace(old, new) for text in machine]
        return "; ".join([*found, *machine])


def software(code: Mapping[str, str] | None = None) -> Software:
    """The software and processor of this process, as ``trial.json`` records them.

    Its own code is that of ``code``, which a driver asks for.
    """
    recorded = provenance()
    return Software(
        esbench=str(recorded["versions"].pop("esbench")),
        origin=Origin(versions=recorded["versions"], hardware=recorded["hardware"]),
        own_code=code_here(code or {}),
    )


@final
class RayCluster:
    """A connection to a Ray cluster, or to a local Ray that starts and ends with it.

    Attributes:
        ray: the module ``ray``.
        is_local: whether this is a Ray of this process alone.
    """

    def __init__(self, address: str | None = None) -> None:
        """Connect; without an address, start a local Ray unless this process has connected one.

        Raises:
            UsageError: Ray is not installed, or the address is wrong or does not answer.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self.ray = optional("ray", "ray", "the engine 'ray'")
        optional("ray.util.scheduling_strategies", "ray", "the engine 'ray'")
        self.address = address
        self._owned = not self.ray.is_initialized()
        self.is_local = address is None and self._owned
        if address is not None:
            require_server(address)
        if self._owned:
            with _undisturbed():
                self._connect(address)
        elif address not in {None, self.head}:
            raise UsageError(
                f"--address {address}: this process is connected to {self.head} already"
            )

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def head(self) -> str:
        """HOST:PORT of the head."""
        return str(self.ray.get_runtime_context().gcs_address)

    def nodes(self) -> list[ClusterNode]:
        """The living nodes that offer CPUs, in the order of their identifiers."""
        found = [
            ClusterNode(
                node["NodeID"], node["NodeManagerAddress"], int(node["Resources"].get("CPU", 0))
            )
            for node in self.ray.nodes()
            if node["Alive"]
        ]
        return sorted((node for node in found if node.cores), key=lambda node: node.id)

    def start(
        self, cls: type, node: ClusterNode, *arguments: object, groups: dict[str, int] | None = None
    ) -> Any:
        """Start an actor of a class on a node; returns its handle at once.

        ``groups`` are the numbers of further threads for calls, by name. The actor claims a trace
        of a CPU: the node then counts as used, and other work still fits on it.
        """
        where = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node.id, soft=False
        )
        options: dict[str, Any] = {"num_cpus": 0.001, "max_restarts": 0}
        actor = self.ray.remote(**options, **({"concurrency_groups": groups} if groups else {}))
        return actor(cls).options(scheduling_strategy=where).remote(*arguments)

    def close(self) -> None:
        """Disconnect, which ends the actors of this process; a local Ray ends, too."""
        if self._owned and self.ray.is_initialized():
            self.ray.shutdown()

    def _connect(self, address: str | None) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            options |= {"include_dashboard": False, "object_store_memory": LOCAL_STORE_BYTES}
            options |= {"num_cpus": usable_cores()}
            # A token of its own. Ray would write one to the home folder, where ``ray start --head``
            # would find it later and refuse nodes and drivers without one.
            os.environ.setdefault(AUTH_TOKEN, secrets.token_hex(32))
            options["_system_config"] = {"worker_niceness": 0}  # as local workers; Ray's is 15
        # Ray prints pages about a lost node, which the engine reports in a sentence.
        vars(self.ray._private.worker)["print_to_stdstream"] = lambda *_, **__: None
        try:
            # Without an address, Ray would join any cluster that it finds on this machine.
            self.ray.init(address=address or "local", **options)
        except Exception as error:  # of the network, of a version check, or of starting processes
            where = "a local Ray cannot start" if address is None else f"--address {address}"
            reason = " ".join(str(error).split())
            if address is not None and AUTH_MODE not in os.environ:
                reason += f"; if it needs a token, set {AUTH_MODE}=token"
            raise UsageError(f"{where}: {reason} (see docs/how-to/ray.md)") from None


def require_server(address: str) -> None:
    """Raises UsageError within seconds if no Ray can be at an address HOST:PORT."""
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--address {address}: expected HOST:PORT, such as 10.0.0.1:6379")
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(PREFACE)
            is_server = connection.recv(4)[3:] == SETTINGS_FRAME
            reason = "" if is_server else "that is no Ray"
    except OSError as error:
        reason = error.strerror or f"no answer within {ANSWER_SECONDS:.0f} s"
    if reason:
        raise UsageError(
            f"--address {address}: {reason}; expected the head of a Ray cluster, which "
            "'ray start --head' prints"
        )


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the handler of the termination signal, and drop Ray's warnings about its future."""
    handler = signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
