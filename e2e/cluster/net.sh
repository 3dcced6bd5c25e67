# shellcheck shell=bash
# The network of one run: namespaces that touch neither the caller's nor another run's. Sourced.
#
#   braid-ID-cp      10.S.0.1     the bridge, the control plane
#   braid-ID-nodeN   10.S.0.10+N  pods of node N in 10.S.128+N.0/24
#   braid-ID-host    10.S.0.254   the tests: reaches nodes, pods and API server
#
# S is 80 + the slot. Services are in 10.96.0.0/16 in every run, hence at most 16 slots.

slots=/run/braid/slots slots_max=16

# take_slot: sets $slot to a free one; a slot is a link to the folder of the run that has it
take_slot() {
  mkdir -p "$slots"
  for ((slot = 0; slot < slots_max; slot++)); do
    ln -sT "$dir" "$slots/$slot" 2>/dev/null || continue
    made slot "$slots/$slot"
    return
  done
  die "all $slots_max slots are taken: see $slots, and \`down\` what you no longer need"
}

netns() { printf 'braid-%s-%s' "$id" "$1"; }
inside() { # NS COMMAND...: `ip netns exec` would mount a new /sys, without the cgroups
  local ns=$1
  shift
  nsenter --net="/run/netns/$(netns "$ns")" "$@"
}
node_ip() { printf '10.%s.0.%s' "$((80 + slot))" "$((10 + $1))"; }
pods_of() { printf '10.%s.%s.0/24' "$((80 + slot))" "$((128 + $1))"; }
cp_ip() { printf '10.%s.0.1' "$((80 + slot))"; }
pods_all() { printf '10.%s.128.0/17' "$((80 + slot))"; }

net_up() {
  local i cp
  cp=$(netns cp)
  add_netns cp
  ip -n "$cp" link add br0 type bridge
  ip -n "$cp" addr add "$(cp_ip)/24" dev br0
  ip -n "$cp" link set br0 up
  inside cp sysctl -qw net.ipv4.ip_forward=1
  plug host 254 host
  for ((i = 1; i <= nodes; i++)); do
    plug "node$i" $((10 + i)) "node$i"
    inside "node$i" sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
    ip -n "$cp" route add "$(pods_of "$i")" via "$(node_ip "$i")"
  done
}

add_netns() {
  made netns "$(netns "$1")"
  ip netns add "$(netns "$1")"
  ip -n "$(netns "$1")" link set lo up
}

plug() { # NS LAST_BYTE PORT: a namespace with one cable to the bridge, whose end there is called PORT
  local ns
  ns=$(netns "$1")
  add_netns "$1"
  ip link add eth0 netns "$ns" type veth peer name "$3" netns "$(netns cp)"
  ip -n "$(netns cp)" link set "$3" master br0 up
  ip -n "$ns" addr add "10.$((80 + slot)).0.$2/24" dev eth0
  ip -n "$ns" link set eth0 up
  ip -n "$ns" route add default via "$(cp_ip)"
}
