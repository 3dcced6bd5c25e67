# shellcheck shell=bash
# A group for each node's pods, under one of the run's: on cgroup v2, or under each hierarchy of v1 (also the hybrid). Sourced.

# The hierarchies that a group needs a folder in
hierarchies() {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    echo /sys/fs/cgroup
  else
    local h
    for h in /sys/fs/cgroup/*/; do
      [[ -L ${h%/} || -e $h/cgroup.controllers ]] || echo "${h%/}" # links are other names of the same hierarchy
    done
  fi
}

# cgroup_up NODE_NAME: an empty group /braid-ID/NODE_NAME; what a crash left in it goes
cgroup_up() {
  local h run unified=/sys/fs/cgroup/unified/braid-$id
  if [[ -d ${unified%/*} ]] && ! grep -qx "cgroup $unified" "$dir/made"; then made cgroup "$unified"; fi # hybrid: runc makes it
  for h in $(hierarchies); do
    run=$h/braid-$id
    [[ -d $run ]] || { made cgroup "$run"; mkdir "$run"; }
    cgroup_gone "$run/$1"
    if [[ -e $h/cgroup.controllers ]]; then
      delegate "$h"
      delegate "$run"
      mkdir "$run/$1"
      delegate "$run/$1"
    else
      [[ ! -e $h/cpuset.cpus ]] || copy_cpuset "$h" "$run"
      mkdir "$run/$1"
      [[ ! -e $h/cpuset.cpus ]] || copy_cpuset "$run" "$run/$1"
    fi
  done
}

# v2: the controllers that a kubelet asks for, to the children of GROUP
delegate() {
  local c
  for c in cpuset cpu io memory pids hugetlb; do
    grep -qw "$c" "$1/cgroup.controllers" && ! grep -qw "$c" "$1/cgroup.subtree_control" || continue
    echo "+$c" >"$1/cgroup.subtree_control" 2>/dev/null ||
      die "cgroup v2: cannot pass \`$c\` on from $1; in a container, its processes must first sit in a group of their own"
  done
}

# v1: a new group has no CPUs and no memory until it is told
copy_cpuset() {
  local f
  for f in cpus mems; do cat "$1/cpuset.$f" >"$2/cpuset.$f"; done
}

cgroup_gone() {
  [[ -d $1 ]] || return 0
  until_true 10 cgroup_rmdir "$1" || die "the cgroup $1 still has processes"
}

cgroup_rmdir() { find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || [[ ! -d $1 ]]; }
