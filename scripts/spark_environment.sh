#!/usr/bin/env bash
# Makes an environment with another PySpark than the lock's, and all other packages as the lock has them. tidelog itself
# is not installed: the tests find it by PYTHONPATH. Needs UV, as .venv/env.sh sets it.
#
#   scripts/spark_environment.sh FOLDER PYSPARK_VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$1" version="$2"
requirements="$(mktemp)"
trap 'rm -f "$requirements"' EXIT
unset VIRTUAL_ENV
"$UV" export --quiet --frozen --group dev --no-emit-project --no-hashes | grep -vE '^(pyspark|py4j)' >"$requirements"
"$UV" venv --quiet --clear --python .venv/bin/python "$folder"
# Without the configuration, which holds PySpark to the lock's.
"$UV" pip install --quiet --no-config --python "$folder/bin/python" -r "$requirements" "pyspark==$version"
