"""A Bloom filter of texts. A text that was added is always found, so "not in" is certain; "in" may be wrong, rarely.

Filters are equal on all machines: they hash by BLAKE2, not by Python's hash.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator


class Bloom:
    """A filter of ``nbits`` bits, of which each text sets ``hashes``."""

    def __init__(self, nbits: int, hashes: int, content: bytes = b"") -> None:
        """content: the bits of an earlier filter of this size."""
        self.nbits, self.hashes = nbits, hashes
        self._bits = bytearray(content or bytes(-(-nbits // 8)))

    @classmethod
    def of_capacity(cls, capacity: int, error: float) -> Bloom:
        """Return a filter that with ``capacity`` texts wrongly finds a part ``error`` of the others."""
        nbits = math.ceil(-capacity * math.log(error) / math.log(2) ** 2)
        return cls(nbits, max(round(nbits / capacity * math.log(2)), 1))

    @property
    def content(self) -> bytes:
        return bytes(self._bits)

    def add(self, text: str) -> None:
        for place in self._places(text):
            self._bits[place // 8] |= 1 << place % 8

    def __contains__(self, text: str) -> bool:
        return all(self._bits[place // 8] >> place % 8 & 1 for place in self._places(text))

    def _places(self, text: str) -> Iterator[int]:
        """The bits of a text: multiples of one number from another on (Kirsch and Mitzenmacher, ESA 2006)."""
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        first, step = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | 1
        return ((first + i * step) % self.nbits for i in range(self.hashes))
