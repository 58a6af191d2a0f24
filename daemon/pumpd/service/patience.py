"""How long other jobs wait for a user that has to shrink. No I/O.

A job with a smaller lease needs time to evict, so for a time the service counts as held what the
job reports. That time is one account for a user on a GPU, for all its jobs together: jobs that
leave and join again, or take turns, get no more of it. It refills slowly while no other user
waits.
"""

from __future__ import annotations

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
        self._accounts: dict[tuple[int, str], _Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def look(self, waited_for: Set[tuple[int, str]], now: float) -> None:
        """From here on other jobs wait for these users on these GPUs, and for no other users."""
        for key, account in list(self._accounts.items()):
            account.spent_s = self._spent(account, now)
            account.looked, account.waits = now, key in waited_for
            if not account.waits and account.spent_s == 0.0:
                del self._accounts[key]
        for key in sorted(waited_for - self._accounts.keys()):
            if not self._full(key[0]):
                self._accounts[key] = _Account(0.0, now)

    def is_over(self, user: int, gpu: str, now: float) -> bool:
        """Return whether the user's account on the GPU is spent."""
        account = self._accounts.get((user, gpu))
        if account is None:
            return self._full(user)
        return self._spent(account, now) >= PATIENCE_S

    def waits(self) -> bool:
        """Return whether any user is waited for."""
        return any(account.waits for account in self._accounts.values())

    def _full(self, user: int) -> bool:
        if len(self._accounts) < GPUS_MOST:
            return False
        return sum(one == user for one, _ in self._accounts) >= GPUS_MOST

    @staticmethod
    def _spent(account: _Account, now: float) -> float:
        passed = now - account.looked
        if account.waits:
            return min(PATIENCE_S, account.spent_s + passed)
        return max(0.0, account.spent_s - passed * BACK_SHARE)
