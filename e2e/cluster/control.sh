# shellcheck shell=bash
# etcd, API server, controller manager, scheduler and DNS, as processes in the namespace `cp`. Sourced.

component() { # NAME FLAG...
  run "$1" nsenter --net="/run/netns/$(netns cp)" "$kube" "$@"
}

control_up() {
  local pki=$dir/pki ip
  ip=$(cp_ip)
  component etcd --name=e --data-dir="$dir/etcd" --unsafe-no-fsync --log-level=warn \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
    --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
    --initial-cluster=e=http://127.0.0.1:2380
  # The aggregator's own routing reaches webhooks and aggregated APIs, for no kube-proxy runs in this namespace.
  component apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address="$ip" --advertise-address="$ip" --secure-port=6443 \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --client-ca-file="$pki/ca.crt" --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,PodSecurity \
    --service-cluster-ip-range=10.96.0.0/16 --allow-privileged \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --kubelet-client-certificate="$pki/kubelet-client.crt" --kubelet-client-key="$pki/kubelet-client.key" \
    --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file="$pki/ca.crt" --requestheader-allowed-names=front-proxy \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key" \
    --enable-aggregator-routing
  until_true 90 api_ready || { tail -5 "$dir"/log/{etcd,apiserver}.log >&2; die "the API server is not ready after 90 s"; }
  component controller-manager --kubeconfig="$pki/controller-manager.conf" --bind-address=127.0.0.1 \
    --authentication-kubeconfig="$pki/controller-manager.conf" --authorization-kubeconfig="$pki/controller-manager.conf" \
    --leader-elect=false --use-service-account-credentials \
    --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --allocate-node-cidrs=false --node-monitor-period=2s --node-monitor-grace-period=12s
  component scheduler --kubeconfig="$pki/scheduler.conf" --bind-address=127.0.0.1 --leader-elect=false \
    --authentication-kubeconfig="$pki/scheduler.conf" --authorization-kubeconfig="$pki/scheduler.conf"
  dns_up
}

api_ready() { [[ $(kubectl get --raw /readyz) == ok ]]; }

# CoreDNS at the control plane's address; a Service without selector leads pods there.
dns_up() {
  cat >"$dir/Corefile" <<COREFILE
.:53 {
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $dir/pki/admin.conf
    endpoint_pod_names
    ttl 1
  }
  cache 1
}
COREFILE
  run dns nsenter --net="/run/netns/$(netns cp)" "$dns" -conf "$dir/Corefile"
  sed "s/CP_IP/$(cp_ip)/" "$here/addons/dns.yaml" | kubectl apply -f - >/dev/null
}
