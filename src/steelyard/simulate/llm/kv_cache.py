"""The token memory of an engine, as vLLM's block pool: blocks that running sequences hold, and an LRU of idle ones.

A block is known by an id that stands for all the text up to its end, so equal ids are equal prefixes. Running sequences
share the blocks they have in common. Idle blocks stay until their room is needed, least recently used first.

Limits: identity is by blocks of the workload (64 tokens in conversations, 512 in Mooncake's trace), where vLLM's have
16: a hit is up to 48 or 496 tokens shorter. A block computed twice at once is counted once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class KvCache:
    def __init__(self, tokens: int, block_tokens: int) -> None:
        self.capacity = tokens
        self.block_tokens = block_tokens
        self.held = 0  # tokens of running sequences
        self._holders: dict[int, int] = {}  # by block: how many running sequences hold it
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def cached_blocks(self) -> int:
        return len(self._holders) + len(self._idle)

    def has_room(self, tokens: int) -> bool:
        return self.held + tokens <= self.capacity

    def match(self, blocks: Sequence[int], most: int) -> int:
        """How many of the leading blocks are here."""
        holders, idle = self._holders, self._idle
        count = 0
        for block in blocks[:most]:
            if block not in holders and block not in idle:
                break
            count += 1
        return count

    def idle_tokens(self, blocks: Sequence[int], count: int) -> int:
        """Of these leading blocks, which are here: what holding them takes."""
        idle = self._idle
        return self.block_tokens * sum(1 for block in blocks[:count] if block in idle)

    def hold(self, blocks: Sequence[int], count: int) -> None:
        """The leading `count` blocks, which are here, for a sequence that begins."""
        holders, idle = self._holders, self._idle
        for block in blocks[:count]:
            if block in holders:
                holders[block] += 1
            else:
                del idle[block]
                holders[block] = 1
                self.held += self.block_tokens

    def fill(self, blocks: Sequence[int], start: int, end: int) -> None:
        """A sequence that holds these tokens already computes the blocks: others may share them from now on."""
        holders, idle = self._holders, self._idle
        for block in blocks[start:end]:
            if block in holders:
                holders[block] += 1
                self.held -= self.block_tokens
                continue
            idle.pop(block, None)
            holders[block] = 1

    def release(self, blocks: Sequence[int], filled: int, full: int, private: int) -> None:
        """A sequence ends: the `filled` blocks that it shares, those up to `full` that it generated, and its `private`
        tokens, which include the latter."""
        holders, idle = self._holders, self._idle
        self.held -= private
        for block in reversed(blocks[filled:full]):
            if block not in holders:
                idle[block] = None
                idle.move_to_end(block)
        for block in reversed(blocks[:filled]):  # the front, which is shared most, ends up most recent
            if holders[block] > 1:
                holders[block] -= 1
                continue
            del holders[block]
            self.held -= self.block_tokens
            idle[block] = None

    def trim(self) -> None:
        """Gives idle blocks up until all fits."""
        room = max(0, self.capacity - self.held) // self.block_tokens
        while len(self._idle) > room:
            self._idle.popitem(last=False)

    def clear(self) -> None:
        self.held = 0
        self._holders.clear()
        self._idle.clear()
