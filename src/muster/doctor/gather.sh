#!/bin/sh
# Prints what muster doctor reads of a GPU node: one pile, on standard output. Read-only; each command has 20 s.
# Needs nothing but sh; as root it sees more. Use: sh gather.sh > pile.txt ; muster doctor --from pile.txt
LC_ALL=C; export LC_ALL
limit=${MUSTER_LIMIT_S:-20}

hide() {
  sed -e 's/\([Bb]earer \)[^ "]*/\1<hidden>/g' \
      -e 's/\(:\/\/[^ \/@:]*:\)[^ \/@]*@/\1<hidden>@/g' \
      -e 's/\(\([Pp]assword\|PASSWORD\|[Ss]ecret\|SECRET\|[Tt]oken\|TOKEN\|API_KEY\|auth\)["]*[ ]*[=:][ ]*["]*\)[^ ",]*/\1<hidden>/g'
}

show() {
  if ! command -v "${1%% *}" >/dev/null 2>&1; then
    return  # a driver in a container leaves no tools on the node: that says nothing
  fi
  printf 'gather@node:~# %s\n' "$1"
  if command -v timeout >/dev/null 2>&1; then
    timeout "$limit" sh -c "$1" 2>&1 </dev/null | tail -n 20000 | hide
  else
    sh -c "$1" 2>&1 </dev/null | tail -n 20000 | hide
  fi
  printf '\n'
}

show "lspci -d 10de:"
show "nvidia-smi"
show "nvidia-smi -L"
show "nvidia-smi -q"
show "nvidia-smi topo -m"
show "dmesg | grep -E 'NVRM|SXid|AER|nouveau|nvidia'"
systemctl cat nvidia-fabricmanager >/dev/null 2>&1 && show "systemctl status nvidia-fabricmanager --no-pager"
[ ! -d /run/nvidia/validations ] || show "ls -A /run/nvidia/validations"
show "nvidia-ctk cdi list"
show "containerd config dump"
show "journalctl --no-pager -u kubelet --since -2h | grep -E 'device plugin|nvidia.com'"
show "journalctl --no-pager -u containerd --since -2h | grep -E 'nvidia|CDI'"
show "scontrol show node \$(hostname -s)"
[ ! -r /var/log/slurm/slurmd.log ] || show "tail -n 200 /var/log/slurm/slurmd.log"
