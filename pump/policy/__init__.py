"""Policies: what the schedule of a client may know, and how jobs share GPUs. No I/O."""

from pump.policy.scheduled import POLICIES as POLICIES
from pump.policy.scheduled import by_name as by_name
