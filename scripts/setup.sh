#!/usr/bin/env bash
# Creates .venv from uv.lock, with tidelog installed in editable mode, and makes sure that Spark has a Java.
# Needs Python 3.11 or later. Finds uv, or installs it into .uv. Finds Java 17 or later, or installs it with the
# system's package manager if it can (as root, with sudo without a password, or with brew), or prints the command.
# Installs Chromium for the tests of the daemon's page in the same way, or says that they will be skipped.
set -euo pipefail

readonly MIN_JAVA=17
readonly MIN_UV_MINOR=5 # uv 0.5 is the first to support dependency groups

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$root"

say() { printf 'setup: %s\n' "$*"; }
stop() { # the problem, and the command that solves it
  printf 'setup: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf 'setup: run this, then make setup again:\n\n    %s\n\n' "$2" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# Prints the prefix to run commands as root: nothing or "sudo -n". Fails if sudo would ask for a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then return; fi
  if have sudo && sudo -n true 2>/dev/null; then echo "sudo -n"; return; fi
  return 1
}
# The prefix for a command that the user has to type.
typed_sudo() { [ "$(id -u)" = 0 ] || printf 'sudo '; }

# --- Python -----------------------------------------------------------------------------------------------------

# Prints the base interpreter of a command, if it runs (a pyenv shim may not) and is new enough.
usable_python() {
  "$1" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(getattr(sys, "_base_executable", sys.executable))' \
    2>/dev/null
}

find_python() {
  local name
  for name in python3.13 python3.12 python3.11 python3; do
    if usable_python "$name"; then return; fi
  done
  return 1
}

python_command() {
  if have apt-get; then
    local version
    for version in 3.13 3.12 3.11; do
      if apt-cache show "python$version-venv" >/dev/null 2>&1; then
        echo "$(typed_sudo)apt-get install -y python$version python$version-venv"
        return
      fi
    done
    echo "$(typed_sudo)apt-get update && $(typed_sudo)apt-get install -y python3 python3-venv"
  elif have dnf; then echo "$(typed_sudo)dnf install -y python3.12"
  elif have apk; then echo "$(typed_sudo)apk add python3"
  elif have brew; then echo "brew install python@3.13"
  else return 1; fi
}

# --- Java -------------------------------------------------------------------------------------------------------

# Prints the major version of the java at a path: 17 for "17.0.15", 8 for "1.8.0_402".
java_major() {
  local line
  line="$("$1" -version 2>&1 | grep -m 1 ' version "')" || return 1
  sed -E 's/.* version "(1\.)?([0-9]+).*/\2/' <<<"$line"
}

java_is_enough() {
  local major
  [ -n "$1" ] && [ -x "$1" ] && major="$(java_major "$1")" && [ "$major" -ge "$MIN_JAVA" ] 2>/dev/null
}

# Sets java_bin, and java_home if Spark would not find this java by itself. Spark looks in JAVA_HOME, then on PATH.
find_java() {
  java_bin="" java_home=""
  local first candidate
  if [ -n "${JAVA_HOME:-}" ]; then first="$JAVA_HOME/bin/java"; else first="$(command -v java || true)"; fi
  if java_is_enough "$first"; then java_bin="$first"; return; fi
  for candidate in "$(command -v java || true)" \
    /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java \
    /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java "${HOME:-}"/.sdkman/candidates/java/current/bin/java; do
    if java_is_enough "$candidate"; then
      java_bin="$candidate"
      java_home="$("$candidate" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p')"
      return
    fi
  done
  return 1
}

# Runs its arguments as commands until one succeeds. Shows their output only if all fail.
first_that_works() {
  local log command
  log="$(mktemp)"
  for command in "$@"; do
    say "  $command"
    if bash -c "$command" >>"$log" 2>&1 </dev/null; then rm -f "$log"; return; fi
  done
  tail -n 15 "$log" >&2
  rm -f "$log"
  return 1
}

# Prints the commands that install Java. $1 is the prefix from as_root or typed_sudo.
java_commands() {
  local sudo="$1"
  if have apt-get; then
    local apt="${sudo}env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
    printf '%s\n' "${sudo}apt-get update && $apt openjdk-$MIN_JAVA-jre-headless" "$apt default-jre-headless"
  elif have dnf; then
    printf "${sudo}dnf install -y %s\n" "java-$MIN_JAVA-openjdk-headless" java-21-openjdk-headless \
      java-latest-openjdk-headless
  elif have apk; then
    printf "${sudo}apk add --no-cache %s\n" "openjdk$MIN_JAVA-jre-headless" openjdk21-jre-headless
  elif have brew; then
    echo "brew install openjdk@$MIN_JAVA"
  fi
}

install_java() {
  local sudo="" commands command
  local -a tries=()
  commands="$(java_commands "$(typed_sudo)")"
  if [ -z "$commands" ]; then
    stop "no Java $MIN_JAVA or later found, and no known package manager; install Java $MIN_JAVA and set JAVA_HOME"
  fi
  local by_hand="${commands//$'\n'/ || }"
  by_hand="${by_hand//env DEBIAN_FRONTEND=noninteractive /}"
  if ! have apt-get && ! have dnf && ! have apk; then sudo="" # brew does not need root
  elif ! sudo="$(as_root)"; then stop "no Java $MIN_JAVA or later found" "$by_hand"; fi
  while IFS= read -r command; do tries+=("$command"); done < <(java_commands "${sudo:+$sudo }")
  say "no Java $MIN_JAVA or later found; installing it"
  first_that_works "${tries[@]}" || stop "Java could not be installed" "$by_hand"
  find_java || stop "Java was installed, but Java $MIN_JAVA or later was still not found; set JAVA_HOME to it"
}

# --- Chromium ---------------------------------------------------------------------------------------------------

# The tests of the page need it. Everything else works without it, so that its absence is said and is no error.
find_or_install_chromium() {
  local name sudo="" install=""
  for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome; do
    if [ -n "$name" ] && have "$name"; then say "Chromium ($(command -v "$name"))"; return; fi
  done
  if have apt-get; then
    install="env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium"
  elif have dnf; then install="dnf install -y chromium"
  elif have apk; then install="apk add --no-cache chromium"
  fi
  if [ -n "$install" ] && sudo="$(as_root)"; then
    sudo="${sudo:+$sudo }"
    say "no Chromium found; installing it"
    if first_that_works "$sudo$install" "${sudo}apt-get update && $sudo$install"; then return; fi
  fi
  say "NO CHROMIUM: the tests of the daemon's page will be skipped; install it, or set CHROMIUM to one"
}

# --- uv ---------------------------------------------------------------------------------------------------------

usable_uv() {
  local version
  version="$("$1" --version 2>/dev/null | sed -nE 's/^uv ([0-9]+)\.([0-9]+).*/\1 \2/p')"
  [ -n "$version" ] || return 1
  [ "${version% *}" -gt 0 ] || [ "${version#* }" -ge "$MIN_UV_MINOR" ]
}

# Sets uv to the one on PATH, or else to one installed in .uv/.
find_or_install_uv() {
  uv="$(command -v uv || true)"
  if [ -n "$uv" ] && usable_uv "$uv"; then return; fi
  uv="$root/.uv/bin/uv"
  if usable_uv "$uv"; then return; fi
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    local version
    version="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    if have apt-get; then
      stop "$python cannot create virtual environments" "$(typed_sudo)apt-get install -y python$version-venv"
    fi
    stop "$python cannot create virtual environments: it lacks the modules venv and ensurepip"
  fi
  say "installing uv into .uv"
  rm -rf .uv
  "$python" -m venv .uv
  .uv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.$MIN_UV_MINOR"
}

# ----------------------------------------------------------------------------------------------------------------

if ! python="$(find_python)"; then
  if command="$(python_command)"; then stop "no Python 3.11 or later found" "$command"; fi
  stop "no Python 3.11 or later found; install one from python.org"
fi
say "$("$python" --version) ($python)"

find_java || install_java
say "Java $(java_major "$java_bin") ($java_bin)"

find_or_install_chromium

find_or_install_uv
say "$("$uv" --version | cut -d ' ' -f 1-2) ($uv)"

say "installing the packages of uv.lock into .venv (the first time, Spark alone is 400 MB)"
unset VIRTUAL_ENV
UV_PROJECT_ENVIRONMENT=.venv "$uv" sync --quiet --frozen --compile-bytecode --group dev --python "$python"

# Read by the make targets: the path of uv, and JAVA_HOME if Spark would not find Java by itself.
{
  printf 'UV=%q\n' "$uv"
  [ -z "$java_home" ] || printf 'export JAVA_HOME=%q\n' "$java_home"
} >.venv/env.sh
touch .venv/.setup-stamp
