"""Django's management commands of the project."""
