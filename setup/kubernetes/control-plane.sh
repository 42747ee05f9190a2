#!/usr/bin/env bash
# Start the control plane in its own network namespace (kcp): etcd, API server, controller manager, scheduler.
cd "$(dirname "$0")"
P=pki
mkdir -p log run data
if ip netns add kcp 2> /dev/null; then
    ip -n kcp link set lo up
    ip -n kcp link add br0 type bridge
    ip -n kcp addr add 10.99.0.254/24 dev br0
    ip -n kcp link set br0 up
    ip link add to-kcp type veth peer name from-root netns kcp
    ip -n kcp link set from-root master br0 up
    ip addr add 10.99.0.250/24 dev to-kcp
    ip link set to-kcp up
    ip route add 10.97.0.0/16 via 10.99.0.1
    for n in 1 2 3; do
        ip -n kcp route add 10.98.$n.0/24 via 10.99.0.$n
        ip route add 10.98.$n.0/24 via 10.99.0.$n
    done
fi

begin() { # a name, and a command
    local name=$1
    shift
    nsenter --net=/run/netns/kcp setsid nohup "$@" > "log/$name.log" 2>&1 &
    echo $! > "run/$name.pid"
}

begin etcd etcd --data-dir=data/etcd --listen-client-urls=http://127.0.0.1:2379 \
    --advertise-client-urls=http://127.0.0.1:2379 --listen-peer-urls=http://127.0.0.1:2380
begin apiserver bin/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --service-cluster-ip-range=10.97.0.0/16 \
    --bind-address=0.0.0.0 --secure-port=6443 --advertise-address=10.99.0.254 --allow-privileged=true \
    --tls-cert-file=$P/apiserver.crt --tls-private-key-file=$P/apiserver.key --client-ca-file=$P/ca.crt \
    --token-auth-file=$P/tokens.csv --authorization-mode=Node,RBAC --service-account-key-file=$P/sa.pub \
    --service-account-signing-key-file=$P/sa.key --service-account-issuer=https://kubernetes.default.svc \
    --kubelet-client-certificate=$P/kubelet-client.crt --kubelet-client-key=$P/kubelet-client.key \
    --kubelet-preferred-address-types=InternalIP
begin kcm bin/kube-controller-manager --kubeconfig=conf/kcm.kubeconfig --root-ca-file=$P/ca.crt \
    --service-account-private-key-file=$P/sa.key --cluster-signing-cert-file=$P/ca.crt \
    --cluster-signing-key-file=$P/ca.key --use-service-account-credentials=true --leader-elect=false \
    --cluster-cidr=10.98.0.0/16
begin scheduler bin/kube-scheduler --kubeconfig=conf/scheduler.kubeconfig --leader-elect=false
