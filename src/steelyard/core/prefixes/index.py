"""Which replica has the leading blocks of a prompt in its cache, as far as what was sent there tells.

Idea: engines cache the prompts they have read, block by block. What a replica was sent last, as much as its cache
holds, is probably there. No event of the engine is needed.

Formula: hash of a block → bit mask of replicas, and for each replica the least recently sent blocks out first. The hash
of a block covers all before it, so a match is a run of known blocks from the first on: the masks are ANDed block by
block, and a replica drops out where its bit does.

Source: the automatic prefix cache of vLLM (Kwon et al., SOSP 2023) and SGLang's RadixAttention (Zheng et al., 2024);
as there, the end of a prompt is forgotten before its beginning. Limits: generated tokens are not entered, and what
others send is not seen.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from ..prompt import MAX_BLOCKS

MAX_ENTRIES: Final = 262_144  # blocks of all replicas together
MAX_MASK_BYTES: Final = 67_108_864  # of their masks, if no two replicas had a block in common

NO_MATCHES: Final[dict[int, int]] = {}


class PrefixIndex:
    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self.entries = 0  # blocks of all replicas
        self._max_entries = max_entries
        self._masks: dict[Any, int] = {}  # by hash of a block
        self._caches: list[OrderedDict[Any, None] | None] = []  # by slot of a replica; the next to be forgotten first
        self._free: list[int] = []  # slots
        self._most = max_entries  # blocks of one replica

    def add_replica(self) -> int:
        """Its slot."""
        if self._free:
            slot = self._free.pop()
            self._caches[slot] = OrderedDict()
        else:
            slot = len(self._caches)
            self._caches.append(OrderedDict())
            count = slot + 1
            self._most = max(1, min(self._max_entries, 8 * MAX_MASK_BYTES // count) // count)
            if self.entries > self._most:  # else no cache can have more
                for other, cache in enumerate(self._caches):
                    if cache is not None and len(cache) > self._most:
                        self._shrink(cache, other, self._most)
        return slot

    def remove_replica(self, slot: int) -> None:
        self.clear(slot)
        self._caches[slot] = None
        self._free.append(slot)

    def clear(self, slot: int) -> None:
        """Its cache is empty now."""
        cache = self._caches[slot]
        if cache is not None:
            self._shrink(cache, slot, 0)

    def blocks_of(self, slot: int) -> int:
        cache = self._caches[slot]
        return len(cache) if cache is not None else 0

    def match(self, blocks: tuple[Any, ...]) -> dict[int, int]:
        """Leading blocks that each replica holds, by slot; without those that hold none."""
        masks = self._masks
        matched: dict[int, int] = {}
        alive = -1  # all of them
        count = 0
        for block in blocks:
            mask = alive & masks.get(block, 0)
            if mask != alive:
                if count:
                    _note(matched, alive & ~mask, count)
                if not mask:
                    return matched
                alive = mask
            count += 1
            if count == MAX_BLOCKS:
                break
        if count:
            _note(matched, alive, count)
        return matched

    def longest_matches(self, blocks: tuple[Any, ...], most: int, start: int) -> list[int]:
        """Slots of at most so many replicas, those that hold most first; of equals, from slot `start` on."""
        masks = self._masks
        groups: list[int] = []  # of replicas that drop out together, the last to do so at the end
        alive = -1
        for block in blocks:
            mask = alive & masks.get(block, 0)
            if mask != alive:
                if groups or alive != -1:
                    groups.append(alive & ~mask)
                alive = mask
            if not mask:
                break
        if alive > 0:
            groups.append(alive)
        found: list[int] = []
        for group in reversed(groups):
            for part in (group >> start << start, group & ((1 << start) - 1)):
                while part and len(found) < most:
                    lowest = part & -part
                    found.append(lowest.bit_length() - 1)
                    part ^= lowest
        return found

    def matched_by(self, slot: int, blocks: tuple[Any, ...]) -> int:
        """Leading blocks that one replica holds."""
        cache = self._caches[slot]
        count = 0
        if cache is not None:
            for block in blocks:
                if block not in cache:
                    break
                count += 1
        return count

    def enter(self, slot: int, blocks: tuple[Any, ...], capacity: int) -> None:
        """The replica, whose cache holds `capacity` blocks, is about to read these."""
        cache = self._caches[slot]
        if cache is None:
            return
        limit = capacity if capacity < self._most else self._most
        bit = 1 << slot
        masks = self._masks
        for place in range(min(len(blocks), limit) - 1, -1, -1):  # the first one is forgotten last
            block = blocks[place]
            if block in cache:
                cache.move_to_end(block)
            else:
                cache[block] = None
                masks[block] = masks.get(block, 0) | bit
                self.entries += 1
        if len(cache) > limit:
            self._shrink(cache, slot, limit)

    def _shrink(self, cache: OrderedDict[Any, None], slot: int, limit: int) -> None:
        others = ~(1 << slot)
        masks = self._masks
        while len(cache) > limit:
            block, _ = cache.popitem(last=False)
            left = masks[block] & others
            if left:
                masks[block] = left
            else:
                del masks[block]
            self.entries -= 1


def _note(matched: dict[int, int], mask: int, count: int) -> None:
    while mask:
        lowest = mask & -mask
        matched[lowest.bit_length() - 1] = count
        mask ^= lowest
