#!/usr/bin/env bash
# Builds, once, what run.sh needs beside the project's own .venv (make setup): a thin venv on top of it with the
# few packages that slime imports on a CPU, and a tiny model.      setup.sh DIR      (does nothing where DIR is complete)
set -eu
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"; REPO="$(cd "$HERE/../.." && pwd)"
DIR="${1:?usage: setup.sh DIR}"; BASE="${BASE_VENV:-$REPO/.venv}"
[ -f "$DIR/.complete" ] && exit 0
[ -x "$BASE/bin/python" ] || { echo "no $BASE: run make setup first" >&2; exit 1; }
mkdir -p "$DIR"; DIR="$(cd "$DIR" && pwd)"
"$BASE/bin/python" -m venv --without-pip "$DIR/venv"
SITE="$("$DIR/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
"$BASE/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$SITE/base.pth"
"$BASE/bin/python" -m pip --python "$DIR/venv/bin/python" install -q --disable-pip-version-check --no-deps \
    sglang-router==0.3.2 omegaconf antlr4-python3-runtime==4.9.3 pylatexenc megatron-core==0.16.1 tensorboard \
    tensorboard-data-server werkzeug markdown absl-py grpcio h2 hpack hyperframe blake3 latex2sympy2_extended==1.0.6
(cd "$DIR" && "$DIR/venv/bin/python" "$HERE/make_tiny_model.py" tiny)
touch "$DIR/.complete"
