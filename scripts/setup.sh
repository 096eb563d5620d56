#!/bin/sh
# Finds any Python that can run scripts/setup_env.py (which then finds the right one for .venv) and starts it.
# usage: scripts/setup.sh [--py312 | --sglang-next | --find VERSION]        PYTHON=/path/to/python3.11 forces the interpreter
set -eu
cd "$(dirname "$0")/.."
for candidate in "${PYTHON:-}" python3.11 python3.12 python3 python; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 7))' >/dev/null 2>&1; then
        exec "$candidate" scripts/setup_env.py "$@"
    fi
done
echo "error: no Python found. live-eval needs Python 3.11: install it with your package manager, or" >&2
echo "       with pyenv (pyenv install 3.11), then run make again. PYTHON=/path/to/python3.11 make setup" >&2
echo "       uses one that is not on PATH." >&2
exit 1
