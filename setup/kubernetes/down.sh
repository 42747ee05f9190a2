#!/usr/bin/env bash
# End the processes that up.sh started, by process id, and restore the machine's settings that a kubelet changes.
cd "$(dirname "$0")"
for n in 1 2 3; do [ ! -f run/containerd$n.pid ] || bash node-down.sh $n; done
pids=$(cat run/*.pid 2> /dev/null)
for pid in $pids; do kill "$pid" 2> /dev/null; done
for _ in $(seq 20); do # the API server waits a minute for its watchers
    left=
    for pid in $pids; do ! kill -0 "$pid" 2> /dev/null || left="$left $pid"; done
    [ -n "$left" ] || break
    sleep 0.5
done
for pid in $left; do kill -9 "$pid" 2> /dev/null; done
for n in 1 2 3; do
    ip netns del node$n 2> /dev/null
    for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd unified; do
        find /sys/fs/cgroup/$c/node$n -depth -type d -exec rmdir {} \; 2> /dev/null
    done
done
ip link del to-kcp 2> /dev/null
ip netns del kcp 2> /dev/null
sysctl -q -p conf/sysctl.before 2> /dev/null
rm -rf node[0-9] data run
