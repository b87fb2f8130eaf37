# arm_run.sh CMD...: runs CMD where programs for 64-bit ARM start like any other, by QEMU's user
# mode. The kernel's table of formats (binfmt_misc) is that of a user namespace of its own; the
# machine's is not touched. Called by tools/dev/arm.sh inside its root; and by release.sh outside
# of it, in a user namespace that has all users (all_users.py), with ARM_RUN_EMULATOR.
set -e
if [ -z "${ARM_RUN_EMULATOR:-}" ]; then
  ARM_RUN_EMULATOR=/usr/bin/qemu-aarch64 exec \
    unshare --user --map-root-user --mount bash "$0" "$@"
fi
table=/proc/sys/fs/binfmt_misc
mount -t binfmt_misc none $table 2>/dev/null || {
  echo "medley: needs Linux 6.7 or newer, which has a table of formats in each user namespace" >&2
  exit 1
}
# ELF, 64 bits, little-endian, for machine 183; P keeps argv[0], F opens the emulator now
printf '%s' ':medley:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:' \
  '\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:' \
  "$ARM_RUN_EMULATOR:PF" >"$table/register"
unset ARM_RUN_EMULATOR
exec "$@"
