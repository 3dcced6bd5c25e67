# shellcheck shell=bash
# What the cluster is made of, built once and kept in the cache under the hash of its sources. Sourced.

# The Debian packages that a node needs.
need_node_packages() {
  need ip=iproute2 iptables=iptables nsenter=util-linux unshare=util-linux modprobe=kmod conntrack=conntrack openssl=openssl \
    containerd=containerd ctr=containerd runc=runc busybox=busybox-static cc=gcc strip=binutils \
    /usr/lib/cni/bridge=containernetworking-plugins
}

# Compiled without debug information: a third of the disk and memory.
go_flags=(-gcflags=all=-dwarf=false -trimpath -buildvcs=false -v)

# built WHAT: the path of kube, dns, pause.tar or busybox.tar, after making it if it is not in the cache
built() {
  local what=$1 key out
  case $what in
  kube | dns) key=$(content_hash "$here/$what" "$here/build.sh") ;;
  *) key=$(content_hash "$here/images" "$here/build.sh" "$e2e/mkimage") ;;
  esac
  out=$cache/bin/$key-$what
  [[ -e $out ]] || locked "$what" make_once "$what" "$out" || return
  touch "$out"
  printf '%s\n' "$out"
}

make_once() { # WHAT OUT
  [[ -e $2 ]] && return 0 # another run made it while we waited
  rm -f "$2.part"
  "make_${1%.tar}" "$2.part" && mv "$2.part" "$2" || return
  find "$cache/bin" -name "*-$1" -mtime +7 -delete # of older sources; a week, for a cluster may still run on them
}

make_kube() {
  command -v go >/dev/null || die "the local cluster is built with Go: please install Go 1.25 or newer"
  local version minor stamps='' package
  version=$(cd "$here/kube" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  minor=${version#v1.} minor=${minor%%.*}
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do # kubelet and API server compare them
    stamps+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor -X $package.gitTreeState=clean"
  done
  say "kube: building Kubernetes $version from its Go modules, once: 5 to 8 minutes with two free cores"
  with_progress kube env -C "$here/kube" CGO_ENABLED=0 go build "${go_flags[@]}" -ldflags "-s -w$stamps" -o "$1" .
}

make_dns() {
  say "dns: building CoreDNS, once: about a minute"
  with_progress dns env -C "$here/dns" CGO_ENABLED=0 go build "${go_flags[@]}" -ldflags '-s -w' -o "$1" .
}

make_pause() {
  local t
  t=$(mktemp -d)
  cc -static -Os -s -o "$t/pause" "$here/images/pause.c" && "$e2e/mkimage" "$1" localhost/pause:1 "$t" 65535:65535 /pause && rm -rf "$t"
}

make_busybox() {
  local t applet
  t=$(mktemp -d)
  mkdir -p "$t"/{bin,tmp,etc,www}
  chmod 1777 "$t/tmp"
  cp "$(command -v busybox)" "$t/bin/busybox"
  for applet in $(<"$here/images/applets"); do ln -s busybox "$t/bin/$applet"; done
  "$e2e/mkimage" "$1" localhost/busybox:1 "$t" 0:0 /bin/sh && rm -rf "$t"
}
