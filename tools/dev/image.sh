# ./dev image: a node as an image for containers. Sourced by ./dev after release.sh.

image_files=$repo/build/image
image_user=65532 # nobody's on any system; owns the state folder

# ./dev image [--mesa]: build/image/medley-VERSION[-mesa]-oci.tar; then it is started here.
verb_image() {
  local mesa='' flavour=''
  case ${1:-} in
    '') ;;
    --mesa) mesa=mesa-vulkan-drivers flavour=-mesa ;;
    *) die "./dev image [--mesa]: '$1' is not that" ;;
  esac
  [ "$(id -u)" = 0 ] || die "image needs root: its files have another owner, and it is started"
  release_bundle || return 1
  local image_root name
  image_root=$(root_for trixie "$repo/tools/image-packages.txt")
  name=medley-$("$repo/tools/version.sh")$flavour
  rm -rf --one-file-system "$image_files"
  mkdir -p "$image_files/root"
  say "making the image $name"
  image_fill "$image_files/root" $mesa || return 1
  image_pack "$image_root" "$image_files/$name-oci.tar" || return 1
  say "$(du -m "$image_files/$name-oci.tar" | cut -f1) MiB: $image_files/$name-oci.tar"
  root_enter "$image_root" docker-compose -f packaging/oci/compose.yaml --profile '*' config \
    --quiet || die "packaging/oci/compose.yaml is not as docker-compose wants it"
  image_try "$image_root" "$image_files/$name-oci.tar"
}

# The bundle, the C library, Vulkan's loader, the authorities; no shell, no package manager.
image_fill() { # FOLDER [PACKAGE...]
  local folder=$1 bundle list
  shift
  bundle=$(echo "$release_files"/medley-*-linux-"$(uname -m)")
  list=$(printf ',%s' libc6 libvulkan1 "$@")
  root_tools
  with_progress "$folder.log" mmdebstrap --variant=extract --include="${list#,}" \
    --aptopt='Acquire::Check-Valid-Until "false"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    trixie "$folder.made" || { tail -n 5 "$folder.log" >&2; return 1; }
  (
    cd "$folder"
    cp -a "$folder.made/usr" .
    ln -s usr/bin bin && ln -s usr/lib lib && ln -s usr/lib64 lib64
    mkdir -p etc/ssl/certs etc/vulkan var/lib/medley proc sys dev models usr/bin opt/medley
    mkdir -m 1777 tmp
    cp -a "$bundle/bin" "$bundle/lib" "$bundle/share" opt/medley/
    ln -s /opt/medley/bin/medley usr/bin/medley
    printf 'root:x:0:0::/root:\nmedley:x:%s:%s::/var/lib/medley:\n' $image_user $image_user \
      >etc/passwd
    printf 'root:x:0:\nmedley:x:%s:\n' $image_user >etc/group
    printf 'hosts: files dns\n' >etc/nsswitch.conf
    inside cat /etc/ssl/certs/ca-certificates.crt >etc/ssl/certs/ca-certificates.crt
  ) && rm -rf --one-file-system "$folder.made" "$folder.log"
}

image_pack() { # ROOT ARCHIVE
  root_enter "$1" env "SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH" sh -ec '
    b="buildah --root $1/store --runroot $1/run --storage-driver vfs"
    chown -R "$3:$3" "$1/root"/var/lib/medley
    made=$($b from scratch)
    $b add --quiet "$made" "$1/root" / >/dev/null
    $b config --user "$3:$3" --workingdir /var/lib/medley --volume /var/lib/medley \
      --env MEDLEY_STATE_DIR=/var/lib/medley --env HOME=/var/lib/medley \
      --entrypoint "[\"/usr/bin/medley\"]" --cmd up \
      --label org.opencontainers.image.title=Medley \
      --label "org.opencontainers.image.version=$4" \
      --label org.opencontainers.image.licenses=Apache-2.0 "$made"
    $b commit --quiet --rm --disable-compression=false --timestamp "$SOURCE_DATE_EPOCH" \
      "$made" "oci-archive:$2:medley:latest" >/dev/null
    rm -rf "$1/store" "$1/run"' sh "$image_files" "$2" $image_user "$("$repo/tools/version.sh")"
}

# As its user, without a capability, its root read-only, with a network of its own.
image_try() { # ROOT ARCHIVE
  say "starting it with crun"
  root_enter "$1" unshare --net --mount \
    python3 "$repo/tests/release/image.py" "$2" "$image_files/try"
}
