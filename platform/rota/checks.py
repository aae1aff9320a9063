"""Django system checks of our own settings (`rota check` runs them with its probes)."""
