#!/usr/bin/env bash
# Build Kubernetes as one program (the name in the call chooses its part) and CoreDNS, from Go modules, into bin/.
set -e; K=$(cd "$(dirname "$0")" && pwd); V=${1:-1.30.14}; SV=v0.${V#1.}; mkdir -p "$K/bin"
export CGO_ENABLED=0 GOFLAGS=-mod=mod
cd "$K/programs/kube"
upstream=$(go mod download -json "k8s.io/kubernetes@v$V" | python3 -c 'import json,sys; print(json.load(sys.stdin)["GoMod"])')
{ printf 'module local/kube\n\ngo 1.22.0\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n' "$V"
  # the staging modules are published by themselves; k8s.io/kube-proxy has no later 0.30 than v0.30.4
  grep -oE '^\s*k8s.io/[a-z0-9-]+ => \./staging' "$upstream" | awk '{print $1}' | sort -u |
    while read -r m; do v=$SV; [ "$m" != k8s.io/kube-proxy ] || v=v0.30.4; echo "  $m => $m $v"; done
  echo ')'; } > go.mod
[ -s go.sum ] || go mod tidy -e >/dev/null 2>&1 || true
C=k8s.io/component-base/version
go build -tags providerless -trimpath -ldflags "-s -w -X $C.gitVersion=v$V -X $C.gitMajor=1 -X $C.gitMinor=${V:2:2}" -o "$K/bin/kube" .
for name in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl; do ln -sf kube "$K/bin/$name"; done
cd "$K/programs/coredns"
[ -s go.mod ] || { go mod init local/coredns; go get github.com/coredns/coredns@v1.11.3; go mod tidy; }
go build -trimpath -ldflags '-s -w' -o "$K/bin/coredns" .
echo "$V" > "$K/bin/version"
