# shellcheck shell=bash
# Local volumes: a default StorageClass and 12 PersistentVolumes per node, each with a fresh folder on the node's disk. One
# whose claim is gone is replaced by a fresh one, as a provisioner would do. Sourced.

volumes_per_node=12

storage_class() {
  cat <<'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
YAML
}

# volume NODE: makes a folder and prints its PersistentVolume; Retain, for only the recycler deletes
volume() {
  local name
  name=$1-$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
  mkdir -m 0777 -p "$dir/$1/volumes/$name"
  cat <<YAML
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $name}
spec:
  storageClassName: local
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: $dir/$1/volumes/$name}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$1]}]}]}}
YAML
}

volumes_up() {
  local i j
  { storage_class; for ((i = 1; i <= nodes; i++)); do for ((j = 0; j < volumes_per_node; j++)); do volume "node$i"; done; done; } |
    kubectl create -f - >/dev/null
  run volumes bash "$here/run" recycle-volumes "$dir"
}

# Runs as the recorded process `volumes`, until it is killed. A watch that ends is begun again, and lists all volumes first.
recycle_volumes() {
  local name phase
  local -A replaced # a deletion has events of its own
  while :; do
    while read -r name phase; do
      [[ $phase == Released && ! ${replaced[$name]:-} ]] || continue
      recycle "$name" && replaced[$name]=yes || say "$name: not replaced; again when the watch begins anew"
    done < <(kubectl get pv --watch --no-headers -o custom-columns=N:.metadata.name,P:.status.phase)
    sleep 1
  done
}

# recycle NAME: the fresh volume is made only once the old one is marked for deletion
recycle() {
  local node=${1%-*} fresh
  kubectl delete pv "$1" --wait=false --ignore-not-found >/dev/null || return 1
  rm -rf "$dir/$node/volumes/$1"
  fresh=$(volume "$node")
  until_true 60 kubectl apply -f - <<<"$fresh" || return 1
  say "$1: replaced"
}
