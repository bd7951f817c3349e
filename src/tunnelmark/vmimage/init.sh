#!/bin/busybox sh
# First program of a machine: mounts the system read-only under a memory overlay, then becomes the
# agent. Every step that fails is named on the console and ends the machine (panic=-1).
b=/bin/busybox

fail() {
  echo "tunnelmark-init: $*"
  $b sleep 0.2
  $b poweroff -f
}

$b mount -t proc proc /proc || fail 'proc cannot be mounted'
$b mount -t sysfs sys /sys || fail 'sysfs cannot be mounted'
$b mount -t devtmpfs dev /dev || fail 'devtmpfs cannot be mounted'

# The question was only whether this accelerator boots a kernel to its end.
case " $($b cat /proc/cmdline) " in
  *' tm.probe '*) echo 'tunnelmark-init: probe done'; $b poweroff -f ;;
esac

# Said so that the console tells how far a machine came that hangs.
echo 'tunnelmark-init: loading modules'
while read -r module; do
  $b insmod "/modules/$module" || fail "module $module cannot be loaded"
done </modules.order

echo 'tunnelmark-init: mounting the system'
tries=0
until [ -b /dev/vda ]; do
  tries=$((tries + 1))
  [ $tries -le 100 ] || fail 'there is no disk /dev/vda'
  $b sleep 0.05
done
$b mount -t squashfs -o ro /dev/vda /ro || fail 'the system image cannot be mounted'
$b mount -t tmpfs -o mode=755 rw /rw || fail 'tmpfs cannot be mounted'
$b mkdir /rw/upper /rw/work
$b mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work root /mnt ||
  fail 'the overlay cannot be mounted'

$b mkdir -p /mnt/usr/local/bin
for program in /payload/*; do
  $b cp "$program" /mnt/usr/local/bin/ || fail "$program cannot be copied"
  $b chmod 755 "/mnt/usr/local/bin/${program##*/}"
done

$b mount --move /proc /mnt/proc
$b mount --move /sys /mnt/sys
$b mount --move /dev /mnt/dev
$b mount -t tmpfs -o mode=755 run /mnt/run
$b mount -t tmpfs -o mode=1777 tmp /mnt/tmp
$b mkdir -p /mnt/dev/pts /mnt/dev/shm /mnt/dev/net /mnt/run/lock /mnt/run/netns /mnt/run/sshd /mnt/run/sstpc
$b chown 102:102 /mnt/run/sstpc
$b mount -t devpts -o ptmxmode=666,mode=620,gid=5 pts /mnt/dev/pts
$b mount -t tmpfs -o mode=1777 shm /mnt/dev/shm
$b ln -s /proc/self/fd /mnt/dev/fd
$b ln -s /proc/self/fd/0 /mnt/dev/stdin
$b ln -s /proc/self/fd/1 /mnt/dev/stdout
$b ln -s /proc/self/fd/2 /mnt/dev/stderr
# Opening these loads their module; the kernel makes the nodes only when it is loaded.
[ -e /mnt/dev/net/tun ] || $b mknod -m 666 /mnt/dev/net/tun c 10 200
[ -e /mnt/dev/ppp ] || $b mknod -m 600 /mnt/dev/ppp c 108 0
$b hostname tunnelmark
$b ifconfig lo up

echo 'tunnelmark-init: starting the agent'
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
# pppd, pptpd and xl2tpd close every descriptor up to the limit before they start.
ulimit -n 1024
exec $b switch_root /mnt /usr/local/bin/tunnelmark-agent init tunnelmark.agent
