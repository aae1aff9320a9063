"""People and the teams they work in.

Belongs here: users, teams, memberships, who may do what. Does not belong here: what a team may have (`quotas`), what
it runs (`jobs`), and pages or API views of either.
"""
