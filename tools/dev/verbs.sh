# What ./dev can do. One function a verb; sourced by ./dev.

verb_help() {
  cat <<'TEXT'
usage: ./dev VERB [...]

  demo         build, then run the bundled model split over two unlike devices
  test         build and run every test; the last line is `N passed, N failed`
  medley ...   build what changed and run the medley binary
  build        build only
  shell [CMD]  a shell (or CMD) inside the environment
TEXT
}

build_dir=$repo/build/release

verb_shell() {
  env_prepare
  if [ $# = 0 ]; then set -- bash; fi
  inside "$@"
}
