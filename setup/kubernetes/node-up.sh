#!/usr/bin/env bash
# node-up.sh N [ZONE]: start a node with its own network, mount and UTS namespaces: containerd, kubelet, kube-proxy.
K=$(cd "$(dirname "$0")" && pwd); cd "$K"; N=$1; ZONE=${2:-zone-$N}; D=$K/node$N
ip netns add node$N 2>/dev/null && {
 ip -n kcp link add v$N type veth peer name eth0 netns node$N
 ip -n kcp link set v$N master br0 up
 ip -n node$N link set lo up; ip -n node$N addr add 10.99.0.$N/24 dev eth0; ip -n node$N link set eth0 up
 ip -n node$N route add default via 10.99.0.254
 for m in 1 2 3; do [ $m = $N ] || ip -n node$N route add 10.98.$m.0/24 via 10.99.0.$m; done
 nsenter --net=/run/netns/node$N sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables'; }
mkdir -p $D/{kubelet,containerd,run,cni,etccni/net.d,pods,containers,log}
cat > $D/etccni/net.d/10-bridge.conflist <<E2
{"cniVersion":"0.4.0","name":"pods","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"hairpinMode":true,"mtu":1500,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.98.$N.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
E2
echo "nameserver 127.0.0.1" > $D/resolv.conf
cat > $D/kubelet.yaml <<E2
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $K/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /node$N
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [10.97.0.10]
clusterDomain: cluster.local
resolvConf: $D/resolv.conf
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 40
E2
cat > $D/proxy.yaml <<E2
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $K/conf/proxy.kubeconfig}
mode: iptables
clusterCIDR: 10.98.0.0/16
hostnameOverride: node$N
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
E2
for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do mkdir -p /sys/fs/cgroup/$c/node$N; done
cp /sys/fs/cgroup/cpuset/cpuset.cpus /sys/fs/cgroup/cpuset/node$N/cpuset.cpus; cp /sys/fs/cgroup/cpuset/cpuset.mems /sys/fs/cgroup/cpuset/node$N/cpuset.mems
cat > $D/start.sh <<E2
cd $K; mount --make-rshared /; hostname node$N
b() { mkdir -p \$2; mount --bind \$1 \$2; }
b $D/kubelet /var/lib/kubelet; b $D/containerd /var/lib/containerd; b $D/run /run/containerd; b $D/cni /var/lib/cni; b $D/etccni /etc/cni
b $D/pods /var/log/pods; b $D/containers /var/log/containers
mkdir -p /run/netns; mount -t tmpfs tmpfs /run/netns; mount --make-rshared /run/netns
setsid nohup containerd -c containerd.toml > log/containerd$N.log 2>&1 & echo \$! > run/containerd$N.pid
for i in \$(seq 50); do [ -S /run/containerd/containerd.sock ] && ctr version >/dev/null 2>&1 && break; sleep 0.2; done
for i in images/*.tar; do ctr -n k8s.io images import \$i; done > log/import$N.log 2>&1
setsid nohup bin/kubelet --config $D/kubelet.yaml --kubeconfig conf/node$N.kubeconfig --node-ip 10.99.0.$N --hostname-override node$N \
 --node-labels topology.kubernetes.io/zone=$ZONE,topology.kubernetes.io/region=local --v=2 > log/kubelet$N.log 2>&1 & echo \$! > run/kubelet$N.pid
setsid nohup bin/kube-proxy --config $D/proxy.yaml > log/proxy$N.log 2>&1 & echo \$! > run/proxy$N.pid
E2
nsenter --net=/run/netns/node$N unshare -m -u --propagation private bash $D/start.sh
