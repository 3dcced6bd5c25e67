# shellcheck shell=bash
# A cluster of the machine's own: the official components in network namespaces, without Docker. Sourced.

kubectl() { inside host "$kube" kubectl --kubeconfig="$dir/pki/admin.conf" "$@"; }

native_up() {
  local i pause_tar busybox_tar
  [[ $EUID == 0 ]] || die "nodes need root"
  case $dir/ in /run/* | /var/lib/* | /var/log/*) die "a node has its own /run, /var/lib and /var/log: choose another folder than $dir" ;; esac
  need_node_packages
  kube=$(built kube) dns=$(built dns) pause_tar=$(built pause.tar) busybox_tar=$(built busybox.tar)
  modprobe -qa br_netfilter overlay 2>/dev/null || true # built in where there are no modules
  mkdir -p "$dir"/{log,pid,cmd,bin,images}
  cp --reflink=auto "$pause_tar" "$busybox_tar" "$dir/images/"
  id=$(od -An -N3 -tx1 /dev/urandom | tr -d ' ')
  take_slot
  made folder "/run/braid/$id"
  declare -p id slot nodes kube dns | sed 's/^declare -[^ ]* //' >"$dir/run.env"
  echo kind=native >>"$dir/run.env"
  net_up
  certs
  kubectl_wrapper
  control_up
  for ((i = 1; i <= nodes; i++)); do node_boot "$i"; done
  volumes_up
  until_true 90 nodes_ready || { kubectl get nodes >&2; die "not all nodes are ready after 90 s: see $dir/nodeN/log"; }
  until_true 30 kubectl -n default get serviceaccount default || die "the controller manager makes no service accounts"
}

nodes_ready() {
  [[ $(kubectl get nodes -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' | grep -c True) == "$nodes" ]]
}

# kubectl of the cluster's own version, from anywhere on this machine
kubectl_wrapper() {
  # shellcheck disable=SC2016 # the wrapper expands them
  printf '#!/bin/sh\nexec nsenter --net=/run/netns/%s env KUBECONFIG="${KUBECONFIG:-%s}" %s kubectl "$@"\n' \
    "$(netns host)" "$dir/pki/admin.conf" "$kube" >"$dir/bin/kubectl"
  chmod +x "$dir/bin/kubectl"
}

# native_down: everything recorded goes, then $dir. Says what is left, if anything is.
native_down() {
  local f kind name left=()
  [[ -f $dir/made || -d $dir/pid ]] || die "no cluster in $dir"
  # The recycler first, so that it makes nothing anew; nodes before their cgroups.
  for f in volumes $(ls "$dir/pid"); do [[ ! -e $dir/pid/$f ]] || stop "$f"; done
  while read -r kind name; do
    case $kind in
    netns) [[ ! -e /run/netns/$name ]] || ip netns del "$name" || left+=("netns $name") ;;
    cgroup) cgroup_gone "$name" || left+=("cgroup $name") ;;
    folder) rm -rf "$name" ;;
    slot) [[ $(readlink "$name") != "$dir" ]] || rm "$name" ;;
    esac
  done < <(tac "$dir/made")
  ! grep -q " $dir/" /proc/self/mountinfo || left+=("mounts under $dir")
  ((${#left[@]} == 0)) || die "left behind: ${left[*]}"
  rm -rf "$dir"
}

# native_load TAR: kept in $dir too, for nodes that start with an empty disk later
native_load() {
  local i ok=0 pids=()
  ln -f "$(realpath "$1")" "$dir/images/" 2>/dev/null || cp "$1" "$dir/images/"
  for ((i = 1; i <= nodes; i++)); do
    import_on "$i" "$1" >>"$dir/log/import.log" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || ok=1; done
  ((ok == 0)) || die "the image is not on every node: see $dir/log/import.log"
}

import_on() {
  local socket
  socket=$(node_run_dir "$1")/containerd.sock
  until_true 30 ctr -a "$socket" version && ctr -a "$socket" -n k8s.io images import "$2"
}

native_status() {
  local name
  printf 'native cluster %s, slot %s, %s nodes\n' "$id" "$slot" "$nodes"
  for name in $(ls "$dir/cmd"); do
    if alive "$name"; then printf '%-20s runs, pid %s\n' "$name" "$(cut -d' ' -f1 "$dir/pid/$name")"; else printf '%-20s ended\n' "$name"; fi
  done
  kubectl get nodes
}

native_netns() { echo "/run/netns/$(netns host)"; }
native_node_kill() { stop "node$1"; }
native_node_boot() {
  [[ ${2:-} != --fresh ]] || node_wipe "$1"
  node_boot "$1"
}
native_node_cut() { ip -n "$(netns cp)" link set "node$1" down; }
native_node_heal() { ip -n "$(netns cp)" link set "node$1" up; }
native_kill() { stop "$1"; }
native_start() { start "$1"; }
