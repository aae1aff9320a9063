"""The strategies by the name that a policy gives them."""

from collections.abc import Mapping
from types import MappingProxyType

from scheduler.engine.placement.binpack import Binpack
from scheduler.engine.placement.fragmentation import Fragmentation
from scheduler.engine.placement.hybrid import Hybrid
from scheduler.engine.placement.mix import mix_of
from scheduler.engine.placement.spread import Spread
from scheduler.engine.placement.strategy import Strategy
from scheduler.engine.policy import Placement, Policy
from scheduler.engine.snapshot import Snapshot

STRATEGIES: Mapping[Placement, Strategy] = MappingProxyType(
    {
        Placement.BINPACK: Binpack(),
        Placement.SPREAD: Spread(),
        Placement.HYBRID: Hybrid(),
    }
)
"""Those that look at nothing but the ledger."""


def strategy_for(policy: Policy, snapshot: Snapshot) -> Strategy:
    """The strategy of a policy, for one decision: it may look at the workload, and remember what it works out."""
    if policy.placement is Placement.FRAGMENTATION:
        return Fragmentation(mix_of(snapshot, policy.inference_headroom))
    return STRATEGIES[policy.placement]
