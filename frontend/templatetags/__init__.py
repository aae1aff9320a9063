"""Template tags of the pages: how a state, a time or a share looks, said once."""
