# shellcheck shell=bash
# What a run started and made. Only what is written here is ever killed or deleted. Sourced.
#
# $dir/pid/NAME holds "PID STARTTIME": a number that went to another process is not ours any more.
# $dir/made has one line per thing outside $dir: netns NAME | cgroup PATH | folder PATH | slot PATH.

# made KIND NAME: to be called before the thing is made, so that a crash leaves nothing unknown
made() { printf '%s %s\n' "$1" "$2" >>"$dir/made"; }

# start_time PID: in clock ticks since boot; nothing if there is no such process, or only its zombie
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  stat=${stat##*) }
  [[ $stat == Z* ]] || cut -d' ' -f20 <<<"$stat"
}

# alive NAME: whether the recorded process still runs
alive() {
  local pid='' started=''
  read -r pid started 2>/dev/null <"$dir/pid/$1" || return 1
  [[ -n $pid && $(start_time "$pid") == "$started" ]]
}

# start NAME: runs $dir/cmd/NAME apart from the caller's terminal, and records it
start() {
  ! alive "$1" || die "\`$1\` runs already"
  setsid bash "$dir/cmd/$1" >>"$dir/log/$1.log" 2>&1 </dev/null &
  local pid=$!
  printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$dir/pid/$1"
}

# run NAME COMMAND...: start, with a command that a later `start` repeats
run() {
  local name=$1
  shift
  printf 'exec %s\n' "$(quoted "$@")" >"$dir/cmd/$name"
  start "$name"
}

# stop NAME: kills it as a power cut would, and waits until it is gone
stop() {
  local pid
  if alive "$1"; then
    read -r pid _ <"$dir/pid/$1"
    kill -9 "$pid"
    until_true 10 gone "$1" || die "\`$1\` (pid $pid) does not end"
  fi
  rm -f "$dir/pid/$1"
}

gone() { ! alive "$1"; }
