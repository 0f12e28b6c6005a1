"""How a daemon runs, and where its tables are.

- `config`: the settings, as one checked value, and the address of the page
- `config_file`: the settings in a file: read, checked, compared
- `sources`: where the tables are: paths, globs and folders, and the tables found there
"""
