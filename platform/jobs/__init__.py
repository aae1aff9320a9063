"""What a job is: what was asked for, which state it is in, who may change that, and what happened to it.

Belongs here: the state machine (`states`, pure), the parsing of a job (`spec`, pure), and the rows around them.
Does not belong here: where a job runs. This package never imports `scheduler`; it writes rows and wakes it by name.
"""
