"""The Django project: how the parts of Rota are put together and brought up.

Belongs here: settings, the environment, URL roots, the ASGI and Celery entry points, checks of a configuration, and
`embedded`, which starts everything on one machine. Does not belong here: models, rules, pages, or anything that
another package imports; this package stands on top of all others.

Importing `rota` itself imports nothing: the supervisor and the environment are read without Django.
"""
