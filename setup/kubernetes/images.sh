#!/usr/bin/env bash
# Make the images that pods need: pause, busybox, CoreDNS, and Debian's broker (suite bookworm: RabbitMQ 3.10.8).
set -e; K=$(cd "$(dirname "$0")" && pwd); mkdir -p "$K/images"; cd "$K/images"; T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
mkdir -p "$T/pause" "$T/bb/bin" "$T/bb/tmp" "$T/dns"
gcc -O2 -static -o "$T/pause/pause" ../pause.c && tar -C "$T/pause" -cf "$T/pause.tar" .
python3 ../mkimage.py registry.k8s.io/pause:3.6 "$T/pause.tar" pause.tar '{"Entrypoint":["/pause"]}'
cp /bin/busybox "$T/bb/bin/"; for a in $(/bin/busybox --list | grep -v '^busybox$'); do ln -sf busybox "$T/bb/bin/$a"; done; tar -C "$T/bb" -cf "$T/bb.tar" .
python3 ../mkimage.py local/busybox:1 "$T/bb.tar" busybox.tar '{"Env":["PATH=/bin"],"Cmd":["sh"]}'
cp "$K/bin/coredns" "$T/dns/"; tar -C "$T/dns" -cf "$T/dns.tar" .
python3 ../mkimage.py local/coredns:1 "$T/dns.tar" coredns.tar '{"Entrypoint":["/coredns"]}'
[ -s rabbitmq.tar ] || {
  mmdebstrap --variant=minbase --include=rabbitmq-server,iproute2,iptables --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='rm -f "$1/var/lib/rabbitmq/.erlang.cookie"' \
    --customize-hook='chmod 777 "$1/etc/rabbitmq" "$1/var/lib/rabbitmq" "$1/var/lib/rabbitmq/mnesia" "$1/var/log/rabbitmq"' \
    "${SUITE:-bookworm}" "$T/rabbitmq.tar"
  python3 ../mkimage.py local/rabbitmq:3.10.8 "$T/rabbitmq.tar" rabbitmq.tar '{"Env":["PATH=/usr/lib/rabbitmq/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","LANG=C.UTF-8","HOME=/var/lib/rabbitmq"],"Cmd":["rabbitmq-server"]}'; }
ls -l ./*.tar
