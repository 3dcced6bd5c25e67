# shellcheck shell=bash
# What every script of e2e shares: where things are kept, how they speak, how they wait. Sourced, never run.
#
# Words: `cache` is the one folder outside the tree and the run's own folder that the scripts write to.

set -euo pipefail
shopt -s inherit_errexit
e2e=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$e2e")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/braid
cargo_target=${CARGO_TARGET_DIR:-$cache/target}
logs=${BRAID_LOGS:-$cache/log}
mkdir -p "$cache"/{bin,image,lock} "$logs"

say() { printf '%s\n' "$*" >&2; }
die() { say "${0##*/}: $*"; exit 1; }

# quoted WORD...: the words as one line of shell
quoted() { printf '%q ' "$@"; }

# content_hash PATH...: 16 hex digits that change with a name or a byte of the files under PATH
content_hash() {
  local p
  for p in "$@"; do (cd "$(dirname "$p")" && find "$(basename "$p")" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); done |
    sha256sum | cut -c1-16
}

# What is called with `||` after it runs without errexit: such functions chain with &&.

# locked NAME COMMAND...: runs it while no other script on this machine holds NAME
locked() {
  local name=$1 fd rc=0
  shift
  exec {fd}>"$cache/lock/$name"
  flock -n "$fd" || { say "$name: waiting for another run that makes it"; flock "$fd"; }
  "$@" || rc=$?
  exec {fd}>&-
  return "$rc"
}

# with_progress NAME COMMAND...: runs it with its output in a log, with a line every 10 s; the log's end if it fails
with_progress() {
  local name=$1 log from=$SECONDS pid rc=0
  shift
  log=$logs/$name.log
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  while ! timeout 10 tail --pid="$pid" -f /dev/null; do
    say "$name: $((SECONDS - from)) s, $(wc -l <"$log") steps, last: $(tail -1 "$log" | cut -c1-100)"
  done
  wait "$pid" || rc=$?
  ((rc == 0)) || { tail -30 "$log" >&2; say "$name: failed after $((SECONDS - from)) s; all of it is in $log"; }
  return "$rc"
}

# until_true SECONDS COMMAND...: asks 5 times a second until it says yes; fails when the time is over
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || return 1
    sleep 0.2
  done
}

# need COMMAND|/FILE=PACKAGE...: installs the Debian packages of those that are missing
need() {
  local pair missing=()
  for pair in "$@"; do
    case $pair in
    /*) [[ -e ${pair%%=*} ]] || missing+=("${pair#*=}") ;;
    *) command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}") ;;
    esac
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null && [[ $EUID == 0 ]] || die "please install: ${missing[*]}"
  say "installing: ${missing[*]}"
  locked packages with_progress packages install_packages "${missing[@]}"
}

# The toolchain is the user's own; a C compiler is needed by the TLS library.
need_rust() {
  command -v cargo >/dev/null || die "please install Rust 1.95 or newer (https://rustup.rs)"
  need cc=gcc strip=binutils
}

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update -q &&
    apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends "$@"
}

# manifests: what `kubectl apply -k manifests` applies, with BRAID_IMAGE, in BRAID_NAMESPACE
manifests() { # COMMAND... that leads to the cluster
  "$@" kubectl kustomize "$root/manifests" |
    sed "s#localhost/braid:latest#$BRAID_IMAGE#; s#braid-system#$BRAID_NAMESPACE#g"
}

# install_braid COMMAND...: applies the manifests and waits until the data plane and the operator are ready
install_braid() {
  local x
  manifests "$@" | "$@" kubectl apply --server-side -f - >/dev/null || return
  for x in statefulset/braid-node deployment/braid-operator; do
    "$@" kubectl rollout status -n "$BRAID_NAMESPACE" "$x" --timeout=180s >&2 || return
  done
}

# no_other_braid COMMAND...: dies if the cluster has an operator in another namespace: two would look after the same topics
no_other_braid() {
  local others
  others=$("$@" kubectl get deployments -A -l app.kubernetes.io/name=braid-operator -o 'jsonpath={.items[*].metadata.namespace}')
  [[ -z $others || $others == "$BRAID_NAMESPACE" ]] || die "Braid is installed in namespace $others already"
}

# remove_braid COMMAND...: all of it but the CRDs and what they hold
remove_braid() {
  "$@" kubectl delete namespace "$BRAID_NAMESPACE" --ignore-not-found --wait=false
  "$@" kubectl delete clusterrolebinding,clusterrole --ignore-not-found -l app.kubernetes.io/part-of=braid
}
