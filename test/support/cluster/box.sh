#!/bin/bash
# Namespaces and mounts of the box and of its nodes. Called by box.ts and node.ts.
#   box.sh box CGROUP CMD…                    runs CMD in a box of its own: no uplink, and nothing left when it ends
#   box.sh node CGROUP LAB ASSETS N COUNT     is machine N of COUNT, in the box
set -euo pipefail

hierarchies() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2, $3 }' /proc/mounts | grep '^/sys/fs/cgroup' | sort -u; }

# Version 2 hands controllers down only from cgroups without processes of their own.
hand_down() {
  local controller
  for controller in $(cat "$1/cgroup.controllers"); do
    echo "+$controller" > "$1/cgroup.subtree_control" 2> /dev/null || true
  done
}

# Moves this process into the cgroup $1 of every hierarchy, made if it is not there.
enter_cgroup() {
  local point type folder part
  while read -r point type; do
    folder=$point
    for part in ${1//\// }; do
      [ "$type" = cgroup2 ] && hand_down "$folder"
      mkdir -p "$folder/$part"
      if [ -e "$folder/$part/cpuset.cpus" ] && [ "$type" = cgroup ]; then
        cat "$folder/cpuset.cpus" > "$folder/$part/cpuset.cpus"
        cat "$folder/cpuset.mems" > "$folder/$part/cpuset.mems"
        echo 1 > "$folder/$part/cgroup.clone_children"
      fi
      folder=$folder/$part
    done
    echo $$ > "$folder/cgroup.procs"
  done <<< "$(hierarchies)"
}

# In new namespaces: /sys and every cgroup hierarchy as they look from here.
remount_cgroups() {
  local found point type name
  found=$(hierarchies)
  umount -R /sys/fs/cgroup
  mount -t sysfs sysfs /sys
  [[ $found = "/sys/fs/cgroup cgroup2" ]] || mount -t tmpfs tmpfs /sys/fs/cgroup
  while read -r point type; do
    mkdir -p "$point"
    if [ "$type" = cgroup2 ]; then
      mount -t cgroup2 cgroup2 "$point"
      if [ -s "$point/cgroup.controllers" ]; then
        mkdir -p "$point/init"
        echo $$ > "$point/init/cgroup.procs"
        hand_down "$point"
      fi
    else
      name=${point##*/}
      [ "$name" = systemd ] && name=none,name=systemd
      mount -t cgroup -o "$name" cgroup "$point"
    fi
  done <<< "$found"
}

box() {
  enter_cgroup "$1"
  shift
  exec unshare --net --mount --pid --ipc --cgroup --fork --kill-child --mount-proc bash "$0" box_init "$@"
}

# Process 1 of the box: bash, because it reaps orphans.
box_init() {
  remount_cgroups
  ip link set lo up
  ip link add fl0 type bridge
  ip addr add 172.30.0.1/24 dev fl0
  ip link set fl0 up
  echo 1 > /proc/sys/net/ipv4/ip_forward
  local code=0
  "$@" || code=$?
  exit $code
}

node() {
  enter_cgroup "$1"
  shift
  exec unshare --net --mount --pid --uts --ipc --cgroup --fork --kill-child --mount-proc bash "$0" node_init "$@"
}

# Process 1 of a node. Its disk is LAB/nodeN, which it sees as /run/node.
node_init() {
  local lab=$1 assets=$2 n=$3 count=$4
  hostname "node$n"
  remount_cgroups
  node_mounts "$lab/node$n" "$lab/logs" "$assets"
  node_network "$n" "$count"
  node_sysctls

  keep "$n" containerd containerd --config /run/node/containerd.toml
  until ctr -n k8s.io version > /dev/null 2>&1; do sleep 0.05; done
  if [ ! -e /run/node/imported ]; then
    ctr -n k8s.io images import /run/node/images.tar >> "/run/logs/node$n-containerd.log" 2>&1
    touch /run/node/imported
  fi
  until [ -e /run/node/apiserver-ready ]; do sleep 0.05; done
  keep "$n" kubelet /run/assets/kubelet --config=/run/node/kubelet.json --kubeconfig=/run/node/kubelet.kubeconfig \
    --hostname-override="node$n" --node-ip="172.30.0.1$n" -v=2
  keep "$n" kube-proxy /run/assets/kube-proxy --kubeconfig=/run/node/kube-proxy.kubeconfig \
    --hostname-override="node$n" --cluster-cidr=10.244.0.0/16 --proxy-mode=iptables \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 \
    --metrics-bind-address=127.0.0.1:10249
  while :; do sleep 3600 & wait $!; done
}

# Runs a service of the node, again and again, as an init system would.
keep() {
  local n=$1 name=$2
  shift 2
  while :; do
    "$@" >> "/run/logs/node$n-$name.log" 2>&1 || true
    sleep 0.5
  done &
}

# Covers every folder of the machine that a node writes to. Nothing is made on the machine's own disk.
node_mounts() {
  local node=$1 logs=$2 assets=$3
  mount --make-rshared /
  mount -t tmpfs tmpfs "$node/run"
  mkdir "$node"/run/{node,logs,assets,containerd,netns}
  mount --bind "$node" "$node/run/node"
  mount --bind "$logs" "$node/run/logs"
  mount --bind "$assets" "$node/run/assets"
  mount --rbind "$node/run" /run
  mount --bind /run/node/lib /var/lib
  mount --bind /run/node/log /var/log
  mount --make-rshared /
}

node_network() {
  local n=$1 count=$2 other
  ip link set lo up
  until ip link show eth0 > /dev/null 2>&1; do sleep 0.02; done
  ip addr add "172.30.0.1$n/24" dev eth0
  ip link set eth0 up
  ip route add 10.96.0.0/16 dev eth0 src "172.30.0.1$n"
  for other in $(seq "$count"); do
    [ "$other" = "$n" ] || ip route add "10.244.$other.0/24" via "172.30.0.1$other"
  done
  echo 1 > /proc/sys/net/ipv4/ip_forward
}

# kubelet writes these for the whole kernel. It gets files that already hold what it wants.
node_sysctls() {
  local entry name
  mkdir -p /run/sysctl
  for entry in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    name=${entry%=*}
    [ -e "/proc/sys/$name" ] || continue
    echo "${entry#*=}" > "/run/sysctl/${name//\//-}"
    mount --bind "/run/sysctl/${name//\//-}" "/proc/sys/$name"
  done
}

"$@"
