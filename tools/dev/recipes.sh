# ./dev recipe-check: other systems' packages of a release, made and used by their own tools as
# Debian has them. Sourced by ./dev after package.sh.

# The recipes with what they lack filled in, beside the bundle.
release_recipes() {
  local recipe
  for recipe in arch/PKGBUILD homebrew/medley.rb nix/flake.nix rpm/medley.spec; do
    sed "s/@VERSION@/$("$repo/tools/version.sh")/" "packaging/$recipe" \
      >"$release_files/${recipe#*/}" || return 1
    publisher_fill "$release_files/${recipe#*/}"
  done
}

verb_recipe_check() {
  [ "$(id -u)" = 0 ] || die "recipe-check needs root: it installs packages in copies of a root"
  release_bundle && release_recipes && recipe_check
}

# Of the release that is there.
recipe_check() {
  local tools work=$repo/build/recipes bare format status=0
  tools=$(root_for trixie "$repo/tools/recipe-packages.txt") && bare=$(bare_root trixie) || return 1
  package_words
  rm -rf --one-file-system "$work"
  for format in rpm arch nix; do
    mkdir -p "$work/$format"
    [ $format = nix ] || cp -a "$bare" "$work/$format/root"
    root_enter "$tools" sh "$repo/tests/release/recipes/$format.sh" "$release_files" \
      "$work/$format" "$release_words" || status=1
    rm -rf --one-file-system "$work/$format"
  done
  root_enter "$tools" ruby "$repo/tests/release/recipes/homebrew.rb" "$release_files/medley.rb" \
    "$(echo "$release_files"/medley-*-linux-"$release_arch".tar.gz)" "$work/homebrew" || status=1
  rm -rf --one-file-system "$work"
  return $status
}
