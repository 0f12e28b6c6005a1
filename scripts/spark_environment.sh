#!/usr/bin/env bash
# Makes an environment with another PySpark than the lock's. All other packages are those of .venv, which it shares, so
# that it takes half a gigabyte. tidelog itself is found by PYTHONPATH. Needs UV, as .venv/env.sh sets it.
#
#   scripts/spark_environment.sh FOLDER PYSPARK_VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder="$1" version="$2"
packages() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

unset VIRTUAL_ENV
"$UV" venv --quiet --clear --python .venv/bin/python "$folder"
packages .venv >"$(packages "$folder")/shared.pth" # read after the environment's own packages, so its PySpark wins
# PySpark is built from source, which leaves four times its size in uv's cache: so this cache is a temporary one, beside
# the environment, where files can be linked. Without the configuration, which holds PySpark to the lock's.
cache="$folder.cache"
trap 'rm -rf "$cache"' EXIT
"$UV" pip install --quiet --no-config --cache-dir "$cache" --python "$folder/bin/python" "pyspark==$version"
