#!/bin/sh
# One-shot start of a composed Rota: the secret key, then tables and the first admin. Safe to repeat.
set -eu

key="${ROTA_SECRET_KEY_FILE:-}"
if [ -n "$key" ] && [ ! -s "$key" ]; then
    (umask 077 && python -c 'import secrets; print(secrets.token_urlsafe(48))' > "$key")
fi
exec python manage.py bootstrap
