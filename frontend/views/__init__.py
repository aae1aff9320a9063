"""The pages, a file a subject.

A view parses, authorizes, calls a service or a selector, and renders. No rule is here.
"""
