# shellcheck shell=bash
# The same commands over kind, where Docker runs and kind exists. Sourced.

kind_up() {
  local i
  mkdir -p "$dir"/{pki,bin}
  id=$(od -An -N3 -tx1 /dev/urandom | tr -d ' ')
  printf 'id=%s nodes=%s kind=kind\n' "$id" "$nodes" >"$dir/run.env"
  {
    printf 'kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes:\n- role: control-plane\n'
    for ((i = 1; i <= nodes; i++)); do echo '- role: worker'; done
  } >"$dir/kind.yaml"
  kind create cluster --name "braid-$id" --config "$dir/kind.yaml" --kubeconfig "$dir/pki/outside.conf" --wait 120s >&2
  # For the tests, which run in the control plane's network, where pods are reachable
  kind get kubeconfig --name "braid-$id" --internal | sed 's#server: .*#server: https://127.0.0.1:6443#' >"$dir/pki/admin.conf"
  # shellcheck disable=SC2016 # the wrapper expands them
  printf '#!/bin/sh\nexec docker exec -i %s kubectl --kubeconfig=/etc/kubernetes/admin.conf "$@"\n' "braid-$id-control-plane" >"$dir/bin/kubectl"
  chmod +x "$dir/bin/kubectl"
}

kind_down() {
  kind delete cluster --name "braid-$id" >&2
  rm -rf "$dir"
}

kind_worker() { echo "braid-$id-worker${1#1}"; } # the first has no number
kind_netns() { printf '/proc/%s/ns/net\n' "$(docker inspect -f '{{.State.Pid}}' "braid-$id-control-plane")"; }
kind_status() { "$dir/bin/kubectl" get nodes; }
kind_load() { kind load image-archive --name "braid-$id" "$1"; }
kind_node_kill() { docker kill "$(kind_worker "$1")" >/dev/null; }
kind_node_boot() {
  [[ ${2:-} != --fresh ]] || die "kind's nodes keep their disk"
  docker start "$(kind_worker "$1")" >/dev/null
}
kind_node_cut() { docker network disconnect kind "$(kind_worker "$1")"; }
kind_node_heal() { docker network connect kind "$(kind_worker "$1")"; }
kind_kill() { die "only the native cluster can do this"; }
kind_start() { kind_kill; }
