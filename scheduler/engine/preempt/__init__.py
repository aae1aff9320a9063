"""Taking from those who run: reclaim of loans and preemption by priority, with the protections that bound them.

Belongs here: who may be taken from (``shields``), the smallest set that lets one job start (``search``), and the cards
kept for it while they are vacated (``claims``). Does not belong here: ending jobs, which the shell does with the plan.

The laws: a set is taken only with proof that the winner starts from it; nothing in the set is superfluous; replicas of
elastic jobs go before whole jobs; what is vacated is the winner's until it starts or goes.
"""
