"""The REST API below `/api/`: one file a resource, each parsing, asking who may, calling a service and serializing.

Belongs here: serializers, viewsets, tokens, the one shape of errors, pages and cursors, ETags, rate limits. Does not
belong here: rules of any kind (services of the package that owns the rows), pages for people (`frontend`).
"""
