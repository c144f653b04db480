"""A worker that takes room until there is none, and says how often. Then it waits to be killed, maybe with the lock.

Arguments: the ledger's descriptor, its row, a device (number, capacity, headroom), column, bytes each, seconds that
they count, and `lock` or nothing.
"""

from __future__ import annotations

import sys
import time

from steelyard.core.memory.ledger import MemoryLedger
from steelyard.link.shared_ledger import SharedLedger

MAX_REFUSALS = 200  # in a row: nobody has the lock for so long

fd, row, number, capacity = map(int, sys.argv[1:5])
headroom, column, amount, seconds = float(sys.argv[5]), int(sys.argv[6]), int(sys.argv[7]), float(sys.argv[8])
shared_ledger = SharedLedger(fd, row)
ledger = MemoryLedger(shared_ledger)
place = ledger.add_residency(ledger.set_device("d", number, capacity, headroom), "http://h:1", column)
taken = refused = 0
while refused < MAX_REFUSALS:
    if ledger.reserve(place, amount):
        taken, refused = taken + 1, 0
    else:
        refused += 1
shared_ledger.set_lease(column, time.monotonic() + seconds)
if sys.argv[9:] == ["lock"]:
    assert shared_ledger.lock(number)
print(taken, flush=True)
time.sleep(600)
