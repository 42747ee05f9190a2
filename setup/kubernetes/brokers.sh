#!/usr/bin/env bash
# brokers.sh EXAMPLE IMAGE: start the cluster of the file EXAMPLE in the namespace default, with an image that the nodes
# have. Its claims get folders of this machine, two in each zone: the storage class of these is the default one.
set -e
cd "$(dirname "$0")"
./kubectl get statefulset rabbit > /dev/null 2>&1 || rm -rf volumes/default
{
    cat << CLASS
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: folders, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
CLASS
    for volume in 1a 1b 2a 2b 3a 3b; do
        mkdir -p "volumes/default/$volume"
        cat << VOLUME
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: folder-$volume}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: folders
  persistentVolumeReclaimPolicy: Retain
  local: {path: "$PWD/volumes/default/$volume"}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [zone-${volume%[ab]}]}]
VOLUME
    done
} | ./kubectl apply -f -
sed "s#image: rabbitmq:.*#image: $2\n          imagePullPolicy: Never#" "$1" | ./kubectl apply -f -
./kubectl rollout status statefulset/rabbit --timeout=300s
