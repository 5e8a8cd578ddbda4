"""Servers on other machines, which the driver calls without waiting and which send it messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final

Arrival: TypeAlias = tuple[int, Any]
"""A number that tells the processes of a server apart, and a message of one of them."""


@final
class Lost(NamedTuple):
    """A node is lost, with everything that runs there."""

    cause: str


class Node(ABC):
    """A machine on which a server runs.

    Attributes:
        name: of the machine, in messages.
        cores: the number of cores that it offers.
    """

    name: str
    cores: int

    @abstractmethod
    def call(self, method: str, *arguments: object) -> None:
        """Call a method of the server, without waiting for it; calls are executed in order."""


class Nodes(ABC):
    """The machines of a cluster, which come and go."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of machines at the moment."""

    @abstractmethod
    def serve(self, server: Callable[[], object], code: Mapping[str, str]) -> None:
        """Start ``server()`` on every machine that has this user code, also those that join later.

        Its method ``receive`` waits for messages and returns them as ``Arrival``.
        """

    @abstractmethod
    def joined(self) -> Sequence[Node]:
        """The nodes that are new since the last call.

        UsageError if one of the first cannot be used.
        """

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait at most so long for messages of the servers, or the loss of a node."""

    @abstractmethod
    def take(self) -> Sequence[tuple[Node, Sequence[Arrival] | Lost]]:
        """All messages that have arrived; at once."""

    @abstractmethod
    def close(self) -> None:
        """End all servers."""
