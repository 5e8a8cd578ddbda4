"""A Ray cluster of stubs: nodes without a Ray, whose actors run in the tests' process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias, final

from esbench.integrations.ray_cluster import ClusterNode, Software, software

Answer: TypeAlias = Callable[[Mapping[str, str]], Software]
"""What a node says about its software when it is asked for user code."""


class RayError(Exception):
    """In place of ``ray.exceptions.RayError``."""


def other_version(code: Mapping[str, str]) -> Software:
    """The software of a node with another version of esbench."""
    return software(code)._replace(esbench="0.0.1")


def other_code(code: Mapping[str, str]) -> Software:
    """The software of a node with other files of all user code."""
    return software(code)._replace(own_code=dict.fromkeys(code, "sha256:0"))


@final
class Reference:
    """The answer of a remote call, which is there at once; ``get`` raises an error."""

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self.answer: Any
        try:
            given = [each.answer if isinstance(each, Reference) else each for each in arguments]
            self.answer = call(*given)
        except RayError as error:
            self.answer = error


@final
class StubCluster:
    """A cluster in place of a ``RayCluster``.

    Attributes:
        answers: the living nodes, with what each says about its software.
        told: for notices.
        killed: the nodes of the actors that were killed.
    """

    is_local = False

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.told: list[str] = []
        self.killed: list[str] = []
        self.ray = SimpleNamespace(
            exceptions=SimpleNamespace(RayError=RayError),
            wait=lambda refs, num_returns=1, timeout=None: (refs, []),
            get=self._get,
            put=lambda value: Reference(lambda: value),
            kill=self._kill,
        )
        self._actors: list[Actor] = []

    def nodes(self) -> list[ClusterNode]:
        return [ClusterNode(name, name, 1) for name in self.answers]

    def start(self, cls: type, node: ClusterNode, server: Any, *_: object, **__: object) -> Actor:
        self._actors.append(Actor(node.id, self.answers[node.id], server()))
        return self._actors[-1]

    def close(self) -> None:
        for actor in self._actors:
            actor.close()

    def _get(self, reference: Reference) -> Any:
        if isinstance(reference.answer, Exception):
            raise reference.answer
        return reference.answer

    def _kill(self, actor: Actor) -> None:
        self.killed.append(actor.name)
        actor.close()


@final
class Actor:
    """The actor of a node."""

    def __init__(self, name: str, answer: Answer, server: Any) -> None:
        self.name, self._server = name, server
        self.software = remote(answer)
        self.call = remote(self._call)

    def close(self) -> None:
        if hasattr(self._server, "close"):
            self._server.close()

    def _call(self, method: str, arguments: bytes, *shared: bytes) -> bytes | None:
        answer = getattr(self._server, method)(*pickle.loads(arguments), *shared)  # noqa: S301
        return None if answer is None else pickle.dumps(answer)


def remote(call: Callable[..., Any]) -> Any:
    """A method of an actor."""
    method = SimpleNamespace(remote=lambda *arguments: Reference(call, *arguments))
    return SimpleNamespace(remote=method.remote, options=lambda **_: method)
