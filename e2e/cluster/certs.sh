# shellcheck shell=bash
# One authority, and a certificate and a kubeconfig per component, in $dir/pki. Sourced.

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

cert() { # NAME SUBJECT [SAN]
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" |
    openssl x509 -req -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" 2>/dev/null \
      -extfile <(printf 'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth,serverAuth\n%s' "${3:+subjectAltName=$3}")
}

kubeconfig() { # NAME; with the certificates inside, so that a copy of the file is enough
  cat >"$1.conf" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: braid, cluster: {server: "https://$(cp_ip):6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
contexts: [{name: braid, context: {cluster: braid, user: $1}}]
current-context: braid
YAML
}

certs() (
  mkdir -p "$dir/pki"
  cd "$dir/pki"
  key ca
  openssl req -x509 -new -key ca.key -subj /CN=cluster-ca -days 30 -out ca.crt -addext keyUsage=critical,keyCertSign,cRLSign
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  cert apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost,IP:127.0.0.1,IP:10.96.0.1,IP:$(cp_ip)"
  cert kubelet-client /O=system:masters/CN=apiserver-kubelet-client
  cert front-proxy /CN=front-proxy
  cert admin /O=system:masters/CN=admin
  cert controller-manager /CN=system:kube-controller-manager
  cert scheduler /CN=system:kube-scheduler
  cert proxy /CN=system:kube-proxy
  local i name
  for ((i = 1; i <= nodes; i++)); do cert "node$i" "/O=system:nodes/CN=system:node:node$i"; done
  for name in admin controller-manager scheduler proxy $(seq -f node%.0f "$nodes"); do kubeconfig "$name"; done
)
