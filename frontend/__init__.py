"""The pages: what people see of Rota, live, in their own language, with the reason beside every wait.

Belongs here: views, templates, static files, the socket that says what is new, and the selectors that gather what one
page shows. Does not belong here: rules of any kind (they stand in `teams`, `quotas`, `jobs`, `scheduler`), the REST
interface (`api`), and words of the engine (their translations are collected in `words.py`).
"""
