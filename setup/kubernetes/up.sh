#!/usr/bin/env bash
# Start three nodes, each a zone, from bin/ and images/: control plane, kubelets, CoreDNS. This machine reaches the API
# server (10.99.0.254), nodes (10.99.0.N), pods (10.98.N.0/24) and services (10.97.0.0/16).
set -e
cd "$(dirname "$0")"
mkdir -p conf log run

within() { # seconds, and a command that is repeated until it succeeds
    local ends=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$ends" ] || { echo "in vain: $*; see $PWD/log" >&2; exit 1; }
        sleep 0.3
    done
}
all_ready() { [ "$(./kubectl get nodes --no-headers | grep -cw Ready)" = 3 ]; }

kept="vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys
    kernel.keys.root_maxbytes net.netfilter.nf_conntrack_max"
# shellcheck disable=SC2086
[ -s conf/sysctl.before ] || sysctl $kept > conf/sysctl.before 2> /dev/null || true
[ -s conf/admin.kubeconfig ] || bash identities.sh
bash control-plane.sh
ip -n kcp route replace 10.97.0.0/16 via 10.99.0.1
within 60 ./kubectl get --raw /readyz
for n in 1 2 3; do bash node-up.sh $n & done
wait
within 120 all_ready
./kubectl apply -f coredns.yaml > /dev/null
./kubectl -n kube-system rollout status deploy/coredns --timeout=90s
./kubectl get nodes -L topology.kubernetes.io/zone
