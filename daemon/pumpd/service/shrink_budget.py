"""Limits how long other jobs wait for a user that must shrink. No I/O.

A job with a smaller lease needs time to evict. For a limited time, the service therefore counts the
memory that the job reports as held. A user has one account of this time on each GPU, for all its
jobs together: jobs that leave and join again, or take turns, get no additional time. The account
refills slowly while other jobs do not wait for the user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass

SHRINK_S = 10.0
"""Longest time that the service waits for a user's jobs to shrink."""
BACK_SHARE = 0.1
"""Seconds that an account regains per second in which other jobs do not wait for the user."""
GPUS_MOST = 64
"""Most accounts of one user; on further GPUs the service does not wait for the user."""


@dataclass
class _Account:
    spent_s: float
    updated: float
    waits: bool = True


class ShrinkBudget:
    """The accounts by user and GPU."""

    def __init__(self) -> None:
        self._accounts: dict[str, dict[int, _Account]] = {}
        self._count = Counter[int]()
        """Number of accounts by user."""

    def __len__(self) -> int:
        return self._count.total()

    @property
    def gpus(self) -> Set[str]:
        """Returns the GPUs with accounts."""
        return self._accounts.keys()

    def update(self, gpu: str, waited_for: Set[int], now: float) -> None:
        """Sets the users that other jobs on the GPU wait for, from `now` on."""
        accounts = self._accounts.setdefault(gpu, {})
        for user, account in list(accounts.items()):
            account.spent_s = self._spent_s(account, now)
            account.updated, account.waits = now, user in waited_for
            if not account.waits and account.spent_s == 0.0:
                del accounts[user]
                self._count[user] -= 1
        for user in sorted(waited_for - accounts.keys()):
            if not self._has_most_accounts(user):
                accounts[user] = _Account(0.0, now)
                self._count[user] += 1
        if not accounts:
            del self._accounts[gpu]
        self._count = +self._count

    def is_over(self, user: int, gpu: str, now: float) -> bool:
        """Returns whether the user's account on the GPU is spent."""
        account = self._accounts.get(gpu, {}).get(user)
        if account is None:
            return self._has_most_accounts(user)
        return self._spent_s(account, now) >= SHRINK_S

    def _has_most_accounts(self, user: int) -> bool:
        return self._count[user] >= GPUS_MOST

    @staticmethod
    def _spent_s(account: _Account, now: float) -> float:
        passed = now - account.updated
        if account.waits:
            return min(SHRINK_S, account.spent_s + passed)
        return max(0.0, account.spent_s - passed * BACK_SHARE)
