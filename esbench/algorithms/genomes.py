"""Genomes of the Deep GA: chains of mutations, and how they become parameter vectors.

A genome is a tuple of noise row numbers. Decoding replays the mutations in order; with a cache
that costs one noise vector per new genome, however long the chain is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

import numpy as np

from esbench.core.arrays import Vector
from esbench.core.noise import GaussianNoise

Genome: TypeAlias = tuple[int, ...]
START: Final[Genome] = ()  # the initial parameters of the policy


@final
@dataclass(frozen=True, eq=False)
class Ancestor:
    """The start of all genomes of a trial, and the scale of their mutations.

    Attributes:
        parameters: the initial parameters of the policy, [P].
        sigma_init: deviation of the first mutation of a genome, a number or [P].
        sigma: deviation of the later mutations, a number or [P].
        identity: a digest of all attributes.
    """

    parameters: Vector
    sigma_init: float | Vector
    sigma: float | Vector
    noise: GaussianNoise
    identity: bytes = field(init=False)

    def __post_init__(self) -> None:
        content = [self.noise.key.to_bytes(16, "little")]
        for part in (self.parameters, self.sigma_init, self.sigma):
            content += [b"%d:" % np.size(part), np.asarray(part, dtype="<f8").tobytes()]
        object.__setattr__(self, "identity", hashlib.sha256(b"".join(content)).digest())

    def decode(self, genome: Genome, known: Genome, parameters: Vector) -> Vector:
        """The parameters [P] of a genome, from those of a ``known`` genome it begins with."""
        vector = parameters.copy()
        for place, mutation in enumerate(genome[len(known) :], len(known)):
            sigma = self.sigma if place > 0 else self.sigma_init
            for at, noise in self.noise.blocks(mutation):
                # theta_n = theta_(n-1) + sigma eps(tau_n)                           (equation 1)
                vector[at] += (sigma[at] if isinstance(sigma, np.ndarray) else sigma) * noise
        return vector


@final
class Decoder:
    """A cache of the decoded genomes of the latest population in this process.

    During a replacement it holds at most two vectors more than there are genomes.
    """

    def __init__(self) -> None:
        self._identity = b""
        self._genomes: tuple[Genome, ...] = ()
        self._vectors: dict[Genome, Vector] = {}

    def vector(self, ancestor: Ancestor, genomes: tuple[Genome, ...], index: int) -> Vector:
        """The parameters of ``genomes[index]``, [P]; the caller must not write to them."""
        if ancestor.identity != self._identity:
            self._identity, self._genomes, self._vectors = ancestor.identity, (), {}
        if genomes is not self._genomes:
            self._genomes, vectors = (), self._vectors
            self._vectors = {}  # so that vectors without descendants are freed at once
            self._vectors = _descendants(ancestor, genomes, vectors)
            self._genomes = genomes
        return self._vectors[genomes[index]]


DECODER: Final = Decoder()


def _descendants(
    ancestor: Ancestor, genomes: tuple[Genome, ...], known: dict[Genome, Vector]
) -> dict[Genome, Vector]:
    """The parameters of genomes, each decoded from the longest known genome it begins with.

    An entry of ``known`` is deleted as soon as no genome is left that descends from it.
    """
    known[START] = ancestor.parameters
    roots = {genome: _longest_known(genome, known) for genome in genomes}
    shared = _shared(genomes)
    if any(len(root) < len(shared) for root in roots.values()):  # after a resume, for example
        root = _longest_known(shared, known)
        known[shared] = ancestor.decode(shared, root, known[root])
        roots = {genome: _longest_known(genome, known) for genome in genomes}
    uses = Counter(roots.values())
    for genome in known.keys() - uses.keys():
        del known[genome]
    decoded = {}
    for genome, root in roots.items():
        decoded[genome] = ancestor.decode(genome, root, known[root])
        uses[root] -= 1
        if not uses[root]:
            del known[root]
    return decoded


def _longest_known(genome: Genome, known: dict[Genome, Vector]) -> Genome:
    return next(genome[:size] for size in range(len(genome), -1, -1) if genome[:size] in known)


def _shared(genomes: tuple[Genome, ...]) -> Genome:
    """The longest common beginning of all genomes: that of the smallest and the largest one."""
    first, last = min(genomes), max(genomes)
    pairs = zip(first, last, strict=False)
    return first[: next((n for n, (a, b) in enumerate(pairs) if a != b), len(first))]
