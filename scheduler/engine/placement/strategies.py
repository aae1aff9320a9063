"""The strategies by the name that a policy gives them."""

from collections.abc import Mapping
from types import MappingProxyType

from scheduler.engine.placement.binpack import Binpack
from scheduler.engine.placement.hybrid import Hybrid
from scheduler.engine.placement.spread import Spread
from scheduler.engine.placement.strategy import Strategy
from scheduler.engine.policy import Placement

STRATEGIES: Mapping[Placement, Strategy] = MappingProxyType(
    {
        Placement.BINPACK: Binpack(),
        Placement.SPREAD: Spread(),
        Placement.HYBRID: Hybrid(),
        Placement.FRAGMENTATION: Binpack(),  # until the fragmentation-aware strategy is here
    }
)
