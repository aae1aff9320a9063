"""The words of `rota` that ask a server: one module each, imported only when its word is called.

Belongs here: options, columns, exit statuses. Does not belong here: HTTP (`rota_client.client`), and what words have in
common (`rota_client.commands.common`).
"""
