# ./dev musl: the sources, compiled against another C library. Sourced by ./dev after testing.sh.

verb_musl() { # [FILE...]
  build_release # its commands, and the sources that it makes
  on_debian_13() { false; } # there, too, what follows happens in its own root
  root=$(root_for trixie "$repo/tools/musl-packages.txt")
  inside python3 tools/dev/musl.py build/release build/musl-include "$@"
}

# ./dev macos: the sources for another system. Clang is the environment's; the headers are musl's.
verb_macos() { # [FILE...]
  build_release
  local musl_root
  musl_root=$(root_for trixie "$repo/tools/musl-packages.txt")
  inside python3 tools/dev/macos.py build/release \
    "$musl_root/usr/include/$(uname -m)-linux-musl" build/macos-headers "$@"
}
