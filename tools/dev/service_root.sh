# service_root.sh LOWER REPO WORK: becomes systemd, in namespaces that ./dev service-check has made.
# REPO is shown read-only as /opt/medley.
set -e
root=$3/root
mkdir "$3/upper" "$3/scratch" "$root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$3/upper,workdir=$3/scratch" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sys "$root/sys"
for folder in run tmp dev sys/fs/cgroup; do mount -t tmpfs tmpfs "$root/$folder"; done
mount -t cgroup2 none "$root/sys/fs/cgroup"
for name in null zero full random urandom tty; do
  touch "$root/dev/$name"
  mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/opt/medley"
mount --bind -o ro "$2" "$root/opt/medley"
ip link set lo up
mkdir -p "$root/old"
cd "$root"
pivot_root . old
umount -l /old
: >/etc/machine-id
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd \
  --log-target=console
