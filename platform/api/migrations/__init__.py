"""Changes of the tables, in order; never edited once released."""
