"""What one page shows, read in a handful of queries whose number does not grow with what there is.

Belongs here: reading for pages, and the numbers of the dashboard, which the API's metrics read too. Does not belong
here: writing, and who may see what, which stands in the permissions of the package that owns the rows.
"""
