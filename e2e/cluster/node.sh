# shellcheck shell=bash
# One node: containerd, kubelet and kube-proxy in namespaces of their own, under one `unshare`. Killing that one process ends
# everything on the node at once, pods included, as a machine's crash does. Its disk is $dir/nodeN. Sourced.
#
# Inside, /run, /var/lib and /var/log are the node's, so nothing of the machine's is written and two kubelets do not meet.

node_run_dir() { printf '/run/braid/%s/node%s' "$id" "$1"; } # short, for a socket's path may have 108 bytes

# node_boot N: with the disk as it was
node_boot() {
  local n=$1 name=node$1 disk=$dir/node$1 run_dir
  run_dir=$(node_run_dir "$n")
  ! alive "$name" || die "$name runs already"
  rm -rf "$run_dir"
  mkdir -p "$disk"/{etc/cni,lib,log,volumes} "$run_dir"/{netns,lock}
  cgroup_up "$name"
  containerd_config >"$disk/etc/containerd.toml"
  cni_config "$n" >"$disk/etc/cni/10-bridge.conflist"
  printf 'nameserver 10.96.0.10\n' >"$disk/etc/resolv.conf"
  kubelet_config "$name" "$disk" >"$disk/etc/kubelet.yaml"
  node_init "$n" "$name" "$disk" "$run_dir" >"$disk/etc/init.sh"
  run "$name" nsenter --net="/run/netns/$(netns "$name")" \
    unshare --pid --fork --kill-child --mount --uts --ipc --propagation private bash "$disk/etc/init.sh"
}

# node_wipe N: an empty disk, as a new machine of that name has; its volumes exist, and are empty
node_wipe() {
  local disk=$dir/node$1
  ! alive "node$1" || die "node$1 runs: kill it first"
  rm -rf "$disk/lib" "$disk/log"
  find "$disk/volumes" -mindepth 2 -maxdepth 2 -exec rm -rf {} +
}

containerd_config() {
  cat <<'TOML'
version = 2
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true   # without CAP_SYS_RESOURCE sandboxes would fail
TOML
  printf '  [plugins."io.containerd.grpc.v1.cri".cni]\n    bin_dir = "/usr/lib/cni"\n    conf_dir = "%s"\n' "$disk/etc/cni"
  printf '  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n    runtime_type = "io.containerd.runc.v2"\n'
}

cni_config() {
  cat <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/ipam", "ranges": [[{"subnet": "$(pods_of "$1")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
JSON
}

kubelet_config() { # NAME DISK; status reports only on change and every 5 min, so that Node objects keep still; a lease every 2 s
  cat <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $dir/pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /braid-$id/$1
failCgroupV1: false
failSwapOn: false
resolvConf: $2/etc/resolv.conf
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
volumePluginDir: /var/lib/kubelet/plugins
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 5m
nodeLeaseDurationSeconds: 8
evictionHard: {memory.available: 50Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%", imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
YAML
}

node_init() { # N NAME DISK RUN_DIR: the node's first process
  local pki=$dir/pki
  cat <<SH
set -e
mount -t proc proc /proc
mount --bind $3/lib /var/lib
mount --bind $3/log /var/log
mount --bind $4 /run
mount --make-rshared /
hostname $2
mkdir -p /var/lib/kubelet
containerd -c $3/etc/containerd.toml >>/var/log/containerd.log 2>&1 &
until ctr -a /run/containerd.sock version >/dev/null 2>&1; do sleep 0.1; done
for image in $dir/images/*.tar; do
  seen=/var/lib/imported-\$(basename "\$image")
  [ -e "\$seen" ] || { ctr -a /run/containerd.sock -n k8s.io images import "\$image" >>/var/log/import.log 2>&1; touch "\$seen"; }
done
$kube proxy --kubeconfig=$pki/proxy.conf --hostname-override=$2 --cluster-cidr=$(pods_all) --proxy-mode=iptables \\
  --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 >>/var/log/proxy.log 2>&1 &
$kube kubelet --config=$3/etc/kubelet.yaml --kubeconfig=$pki/$2.conf --hostname-override=$2 --node-ip=$(node_ip "$1") >>/var/log/kubelet.log 2>&1 &
wait
SH
}
