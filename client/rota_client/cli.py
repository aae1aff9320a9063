"""The `rota` command: finds the words other distributions add to it and imports only the one that is called."""
