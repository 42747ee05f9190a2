#!/usr/bin/env bash
# suite.sh PYTHON CHECKOUT: make an image of the checkout's own wheel, local/resilience:1, and put it on running nodes.
# PYTHON is the one of .venv. It must have the version of the Python in the image, that of Debian's suite bookworm.
set -e; K=$(cd "$(dirname "$0")" && pwd); python=$1; checkout=$2; mkdir -p "$K/images" "$K/suite"; cd "$K/suite"
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
"$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed, as in the image" >&2; exit 1; }
[ -s root.tar ] || {
  mmdebstrap --variant=minbase --include=python3 --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$T/root.tar"
  mv "$T/root.tar" root.tar; }
pip="$python -m pip --disable-pip-version-check --quiet --no-input"
$pip wheel --no-deps --no-build-isolation --wheel-dir "$T/wheels" "$checkout"
$pip install --constraint "$checkout/constraints.txt" --target "$T/layer/opt/resilience" "$(echo "$T"/wheels/*.whl)[kubernetes,trend]"
rm -rf "$T/layer/opt/resilience/bin"; mkdir -p "$T/layer/usr/local/bin" "$T/layer/scratch"; chmod 777 "$T/layer/scratch"
for name in rabbitmq-resilience:rabbitmq_resilience pytest:pytest; do
  printf '#!/bin/sh\nexec python3 -m %s "$@"\n' "${name#*:}" > "$T/layer/usr/local/bin/${name%:*}"; done
[ ! -x "$checkout/.tools/bin/toxiproxy-server" ] || cp -L "$checkout/.tools/bin/toxiproxy-server" "$T/layer/usr/local/bin/"
chmod 755 "$T"/layer/usr/local/bin/*
cp root.tar "$T/whole.tar"; tar -C "$T/layer" --owner=0 --group=0 -rf "$T/whole.tar" opt usr/local/bin scratch
python3 "$K/mkimage.py" local/resilience:1 "$T/whole.tar" "$K/images/resilience.tar" '{"User":"10001:10001","WorkingDir":"/scratch","StopSignal":"SIGINT","Env":["PATH=/usr/local/bin:/usr/bin:/bin","PYTHONPATH=/opt/resilience","PYTHONUNBUFFERED=1","HOME=/scratch","LANG=C.UTF-8"],"Cmd":["rabbitmq-resilience","--help"]}'
ls -l "$K/images/resilience.tar"
for n in 1 2 3; do
  [ ! -f "$K/run/containerd$n.pid" ] || nsenter --target "$(cat "$K/run/containerd$n.pid")" --mount \
    ctr --namespace k8s.io images import "$K/images/resilience.tar"; done
