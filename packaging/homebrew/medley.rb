# For Homebrew on Linux: packs the bundle that ./dev release makes. MEDLEY_BUNDLE names the file.
class Medley < Formula
  desc "One computer for language models, made of unlike machines"
  homepage "urn:medley"
  url "file://#{ENV.fetch("MEDLEY_BUNDLE", "/medley-@VERSION@-linux-x86_64.tar.gz")}"
  version "@VERSION@"
  license "Apache-2.0"

  depends_on :linux

  def install
    libexec.install "bin", "lib", "share"
    bin.install_symlink libexec/"bin/medley"
    man1.install_symlink libexec/"share/man/man1/medley.1"
    bash_completion.install_symlink libexec/"share/bash-completion/completions/medley"
    zsh_completion.install_symlink libexec/"share/zsh/site-functions/_medley"
    fish_completion.install_symlink libexec/"share/fish/vendor_completions.d/medley.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/medley --version")
  end
end
