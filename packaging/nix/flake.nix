# Packs the bundle that ./dev release makes: lay its unpacked folder beside this file as `bundle`.
{
  description = "One computer for language models, made of unlike machines";
  inputs.nixpkgs.url = "nixpkgs";
  outputs = { self, nixpkgs }:
    let
      packageFor = system:
        let pkgs = nixpkgs.legacyPackages.${system};
        in pkgs.stdenv.mkDerivation {
          pname = "medley";
          version = "@VERSION@";
          src = ./bundle;
          nativeBuildInputs = [ pkgs.autoPatchelfHook ];
          buildInputs = [ pkgs.stdenv.cc.cc.lib pkgs.vulkan-loader ];
          dontStrip = true;
          installPhase = ''
            mkdir -p $out
            cp -R bin lib share $out/
          '';
          meta.license = pkgs.lib.licenses.asl20;
        };
      systems = [ "x86_64-linux" "aarch64-linux" ];
    in {
      packages = nixpkgs.lib.genAttrs systems (system: { default = packageFor system; });
    };
}
