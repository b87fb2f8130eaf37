# nix.sh FILES WORK WORDS: Nix evaluates the flake of a release and builds it, with a stand-in for
# nixpkgs: no network is there, and the real one has its own C library and patches the program. So
# what is seen is that the flake is right in its words and its install phase.
set -eu
files=$1
work=$2
words=$3
flaw() { printf 'recipe-check: %s\n' "$*" >&2; exit 1; }
mkdir -p "$work/flake" "$work/nixpkgs" "$work/home" /nix
mount -t tmpfs nix /nix
export HOME="$work/home" NIX_CONFIG="experimental-features = nix-command flakes
build-users-group =
sandbox = false
substituters =
flake-registry ="

cp "$files/flake.nix" "$work/flake/"
tar -x -C "$work/flake" -f "$(echo "$files"/medley-*-linux-*.tar.gz)"
mv "$work"/flake/medley-*-linux-* "$work/flake/bundle"
cat >"$work/nixpkgs/flake.nix" <<'NIX'
{
  outputs = { self }:
    let
      packagesFor = system: {
        autoPatchelfHook = "none";
        vulkan-loader = "none";
        lib.licenses.asl20 = "Apache-2.0";
        stdenv = {
          cc.cc.lib = "none";
          mkDerivation = attrs: derivation {
            inherit system;
            inherit (attrs) src installPhase;
            name = "${attrs.pname}-${attrs.version}";
            builder = "/bin/sh";
            PATH = "/usr/bin:/bin";
            args = [ "-ec" "cp -R $src bundle; cd bundle; eval \"$installPhase\"" ];
          };
        };
      };
      each = names: f: builtins.listToAttrs (map (name: { inherit name; value = f name; }) names);
    in {
      lib.genAttrs = each;
      legacyPackages = each [ "x86_64-linux" "aarch64-linux" ] packagesFor;
    };
}
NIX
nix-instantiate --parse "$files/flake.nix" >/dev/null
nix flake check --offline --all-systems --no-build --override-input nixpkgs \
  "path:$work/nixpkgs" "path:$work/flake" >"$work/said" 2>&1 || { cat "$work/said" >&2; exit 1; }
nix build --offline --no-link --print-out-paths --override-input nixpkgs "path:$work/nixpkgs" \
  "path:$work/flake" >"$work/out" 2>"$work/said" || { cat "$work/said" >&2; exit 1; }
out=$(cat "$work/out")
[ "$("$out/bin/medley" run "$out/share/medley/demo.gguf" -p "Tell me a story about a fox." -n 40 \
  --temp 0 --devices cpu 2>/dev/null)" = "$words" ] || flaw "the bundled model tells another text"
echo "Nix: parsed, checked, built and used with a stand-in for nixpkgs"
