"""Opens the engine that plays the episodes of trials, by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final, get_args

from esbench.core.errors import UsageError, require_choice

if TYPE_CHECKING:
    from esbench.engine.engine import Engine

EngineName: TypeAlias = Literal["local", "ray"]


@final
@dataclass(frozen=True)
class EngineChoice:
    """An engine and its options.

    Attributes:
        name: "local" for processes of this machine, or "ray".
        workers: worker processes, per node with "ray"; default one per core.
        address: HOST:PORT of a Ray cluster; None starts a Ray of this machine alone.
        allow_mixed: also use nodes with other versions, processors or user code.

    Raises:
        UsageError: there is no engine of that name.
    """

    workers: int | None = None
    name: EngineName = "local"
    address: str | None = None
    allow_mixed: bool = False

    def __post_init__(self) -> None:
        require_choice("engine", self.name, get_args(EngineName))

    def open(self) -> Engine:
        """The engine, which the caller closes.

        Raises:
            UsageError: the options do not fit together, or the engine is not available.
        """
        if self.name == "ray":
            from esbench.integrations.ray_engine import RayEngine

            return RayEngine(self.address, self.workers, self.allow_mixed)
        if self.address is not None or self.allow_mixed:
            option = "allow_mixed" if self.address is None else f"address {self.address}"
            raise UsageError(f"{option}: expected the engine 'ray', not 'local'")
        from esbench.engine.worker_pool import WorkerPool

        return WorkerPool(self.workers)
