"""How long other jobs wait for a user that has to shrink. No I/O.

A job with a smaller lease needs time to evict, so for a time the service counts as held what the
job reports. That time is one account for a user on a GPU, for all its jobs together: jobs that
leave and join again, or take turns, get no more of it. It refills slowly while no other user
waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass

PATIENCE_S = 10.0
"""After that the service does not wait for a user's jobs to shrink."""
BACK_SHARE = 0.1
"""Seconds that an account regains in a second in which no other user waits."""
GPUS_MOST = 64
"""Accounts of one user; on further GPUs the service does not wait for it."""


@dataclass
class _Account:
    spent_s: float
    looked: float
    waits: bool = True


class Patience:
    """The accounts by user and GPU."""

    def __init__(self) -> None:
        self._accounts: dict[str, dict[int, _Account]] = {}
        self._count = Counter[int]()
        """Accounts by user."""

    def __len__(self) -> int:
        return self._count.total()

    @property
    def gpus(self) -> Set[str]:
        """GPUs on which there are accounts."""
        return self._accounts.keys()

    def look(self, gpu: str, waited_for: Set[int], now: float) -> None:
        """From here on other jobs wait for these users on the GPU, and for no other users."""
        accounts = self._accounts.setdefault(gpu, {})
        for user, account in list(accounts.items()):
            account.spent_s = self._spent(account, now)
            account.looked, account.waits = now, user in waited_for
            if not account.waits and account.spent_s == 0.0:
                del accounts[user]
                self._count[user] -= 1
        for user in sorted(waited_for - accounts.keys()):
            if not self._full(user):
                accounts[user] = _Account(0.0, now)
                self._count[user] += 1
        if not accounts:
            del self._accounts[gpu]
        self._count = +self._count

    def is_over(self, user: int, gpu: str, now: float) -> bool:
        """Return whether the user's account on the GPU is spent."""
        account = self._accounts.get(gpu, {}).get(user)
        if account is None:
            return self._full(user)
        return self._spent(account, now) >= PATIENCE_S

    def _full(self, user: int) -> bool:
        return self._count[user] >= GPUS_MOST

    @staticmethod
    def _spent(account: _Account, now: float) -> float:
        passed = now - account.looked
        if account.waits:
            return min(PATIENCE_S, account.spent_s + passed)
        return max(0.0, account.spent_s - passed * BACK_SHARE)
