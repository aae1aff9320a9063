"""What people ask about a waiting job: where it is stopped, behind whom, until when, and what would start it now.

Belongs here: answers worked out from a snapshot, on demand: the funnel (``funnel``), the line and quota (``ahead``),
the expected start of all (``forecast``, with ``runtimes``) and what would change it (``answer``, with ``remedies``,
``candidates``, ``trials`` and ``whatif``). Each claim about the engine is one that the engine itself has been seen to
bear out. Pure, like all of it.

Does not belong here: the reason of a job, which every decision gives (``scheduler.engine.explain``); keeping answers
(the caller does, by the snapshot's version); words in other languages (facts and templates leave, translations are
made where people read).
"""
