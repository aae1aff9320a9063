"""The English sentences that the rest of Rota stores, so that the pages can say them in other languages.

A test compares them with the sources: one that is missing here fails the build.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop as _

HOLDS: tuple[str, ...] = (
    # scheduler/engine/gates.py
    _("held: {why}"),
    _("its last attempt failed; it is tried again at {at}"),
    _("not to start before {at}"),
    _("waits for other jobs: {jobs}"),
    # scheduler/engine/cycle.py, scheduler/selectors.py
    _("the cluster has not been looked at completely yet"),
    _("nobody has looked at it yet"),
    # scheduler/engine/feasibility.py
    _("may not use {names} again, and no other node could hold it"),
    _("nodes that fit, but are out of service: {gone} of {total} ({names})"),
    _("cards that fit, but are out of service: {cards}"),
    _("nodes that fit, but are out of service: {gone} of {total} ({names}), and besides them cards: {cards}"),
    _("nodes with {what} and the labels {labels}: {having} of {total}"),
    _("nodes that fit, but with taints it does not tolerate ({taints}): {shut} of {total}"),
    _("no node has {what}"),
    _("needs {need:g} GiB on each card, no {what} has more than {most:g} GiB for it"),
    _("one replica needs {need:g} {unit}, the largest node has {largest:g}"),
    _("needs {need} {what}{parts}, the cluster has {have}"),
    _("does not fit on the nodes with {what}, even with all of them empty"),
    _("needs {need} {what} in one {level}, the largest has {most}"),
    _("there are too few domains by {level} to spread {replicas} replicas over"),
    _("no choice of the nodes in service that fit keeps to its topology by {level}"),
    # scheduler/engine/throttle.py
    _("jobs starting: {starting}, the limit is {limit}"),
    _("jobs started in the last minute: {started}, the limit is {limit}"),
    _("jobs of {team} started in the last minute: {started}, the limit is {limit}"),
    # scheduler/engine/explain.py
    _("needs {need:g} {what}{parts}, {team} may never hold more than {limit:g}"),
    _("{team} holds {used:g} of its limit of {limit:g} {what}, this job needs {need:g}"),
    _("what is idle of {what} is not lent: {team} may have {left:g} more, this job needs {need:g}"),
    _("the guaranteed share of {team} is lent out, and still protected until {at}"),
    _("{ahead} of {team} goes first"),
    _("others go first"),
    _("the free {what} are held for {ahead} of {team}, to start by {at}"),
    _("waits for {gpus} {what} to be vacated on {nodes}"),
    _("needs {replicas} × ({cpus:g} CPU, {memory:g} GiB of host memory), there is room for {room}"),
    _("a replica needs {need:g} {short}, the most free on one node is {best:g}"),
    _("{what} are free, but not where a replica finds {cpus:g} {short} and {memory:g} GiB of host memory"),
    _("needs {need} {what}{parts}, {free} of {total} free"),
    _("needs {need} × {mib} MiB, room for {room}: the most left on one card is {most} MiB"),
    _("{free} {what} are free, not {replicas} × {gpus} together: the most on one node is {most}"),
    _("{free} {what} are free and would do, but not within its topology by {level}"),
    _("there is room for {room} × {mib} MiB, not for {replicas} × {gpus} of them on the cards of one node"),
    _("each group may fit alone, but {parts} GPUs do not together: {free} are free, {most} on one node"),
    # scheduler/engine, the estimate of a start
    _("later than could be worked out: so many jobs go first"),
    _("nothing that is known to happen will let it start"),
    _("{gpus} {what} are held by jobs that may run for ever, having no time limit: {jobs}"),
    _("not within {days:g} days, if all goes on like this"),
)
"""Templates of :class:`scheduler.engine.reasons.Hold`."""

VERDICTS: tuple[str, ...] = (
    # platform/jobs/states.py
    _("it completed"),
    _("it reached its time limit"),
    _("it was cancelled"),
    _("it held cards that it did not use"),
    _("a job of higher priority took its cards"),
    _("its cards were on loan and were taken back"),
    _("the infrastructure ended it {count} times in a row"),
    _("it was {end} through no fault of its own"),
    _("it hung, and no retry is left (limit {allowed})"),
    _("it failed, and no retry is left (limit {allowed})"),
    _("it hung, retry {own} of {allowed}"),
    _("it failed, retry {own} of {allowed}"),
    # what services and backends write beside a change
    _("cancelled by {user}"),
    _("released by {user}"),
    _("requeued by an admin"),
    _("killed by signal {signal}"),
    _("the team {team} is being archived"),
    _("jobs of {team} waiting: {waiting}, the limit is {limit}"),
)
"""What becomes of a job at the end of an attempt, and why somebody changed it, with names for its parts."""

PROBLEMS: tuple[str, ...] = (
    # platform/jobs/reading.py, platform/jobs/spec.py, frontend/jobform.py
    _("is missing"),
    _("must be at least {least}"),
    _("must be at most {most}"),
    _("must be more than {least}"),
    _("must be a whole number, not {value}"),
    _("must be a number, not {value}"),
    _("must be text, not {value}"),
    _("must be true or false, not {value}"),
    _("must be a duration such as 90, 90s, 5m, 2h or 1d, not {value}"),
    _("must be one of {names}, not {value}"),
    _("must be low, normal, high or a whole number from 0 to 1000, not {value}"),
    _("must be one of low, normal, high or a number, not {value}"),
    _("must be a list, not {value}"),
    _("must be a mapping, not {value}"),
    _("must be a mapping of names to values"),
    _("must be text"),
    _("must not be empty"),
    _("must not be negative"),
    _("must be printable characters without a space at either end"),
    _("must not be longer than {most} characters"),
    _("must not come to more than {most} GPUs"),
    _("is missing: a job that shares its cards says how much memory it takes"),
    _("is not a job's to set"),
    _("must be an absolute path, not {value}"),
    _("{name} is there twice"),
    _("{name} cannot name a variable"),
    _("line {line}: must be NAME=VALUE"),
    _("a quotation mark is not closed"),
    _("is nested too deep"),
    _("this is no YAML"),
    # services
    _("only a platform admin may do that"),
    _("only a lead of {team} or a platform admin may do that"),
    _("the cluster {cluster} is not open to the team {team}"),
    _("there is no cluster {cluster}"),
    _("there is no team {team}"),
    _("there is no user {user}"),
    _("there is already a user with the address {email}"),
    _("there is already a user {user}"),
    _("must be more than dots"),
    _("must be printable characters"),
    _("there is already a team {team}"),
    _("must be a date such as 2026-12-31"),
    _("is missing; it can be {names}"),
    _("is missing, and you are in no team yet"),
    _("the job {job} is not yours to change"),
    _("the job {job} is {state}: only a job that has ended is tried again"),
    _("the team {team} is archived"),
    _("the team {team} is being archived and takes no new jobs"),
    _("the team {team} has no job {job}"),
)
"""What is wrong with what somebody entered, without the name of the field before it."""

SENTENCES: tuple[str, ...] = (*HOLDS, *VERDICTS, *PROBLEMS)

WORDS: frozenset[str] = frozenset(
    {
        _("GPUs"), _("CPUs"), _("GiB of host memory"), _("lost"), _("evicted"), _("rack"), _("switch"), _("node"),
        _("nvlink"), _("queued"), _("running"), _("failed"),
    }
)  # fmt: skip
"""English words that stand among the facts."""
