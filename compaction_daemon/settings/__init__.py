"""How a daemon runs, and where its tables are.

- `config`: the settings, as one checked value
- `config_file`: the settings in a file: read, checked, compared
- `config_texts`: what the texts of such a file stand for: environment variables, relative paths, lines
- `listen_address`: where a daemon listens for HTTP
- `sources`: where the tables are: paths, globs and folders, and the tables found there
- `path_patterns`: patterns of paths, as a shell has them
"""
