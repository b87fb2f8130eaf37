# homebrew.rb FORMULA BUNDLE PREFIX: does what Homebrew does with a formula of a release, without
# Homebrew, which Debian does not have: reads it, unpacks its source, runs `install` and `test`.
require "fileutils"
require "pathname"

FORMULA, BUNDLE, PREFIX = ARGV.map { |each| File.expand_path(each) }

# What Homebrew adds to Ruby's paths.
class Pathname
  def install(*names)
    mkpath
    names.each { |name| FileUtils.cp_r(name, self, preserve: true) }
  end

  def install_symlink(target)
    raise "there is no #{target}" unless target.exist?

    mkpath
    FileUtils.ln_s(target, self + target.basename)
  end
end

class Formula
  class << self
    attr_reader :tests

    %i[desc homepage license depends_on].each { |word| define_method(word) { |*| } }

    def url(value = nil) = value ? @url = value : @url

    def version(value = nil) = value ? @version = value : @version

    def test(&block) = @tests = block
  end

  { libexec: "libexec", bin: "bin", man1: "share/man/man1",
    bash_completion: "etc/bash_completion.d", zsh_completion: "share/zsh/site-functions",
    fish_completion: "share/fish/vendor_completions.d" }.each do |word, folder|
    define_method(word) { Pathname(PREFIX) + folder }
  end

  def version = self.class.version

  def shell_output(command)
    said = `#{command}`
    raise "failed: #{command}" unless $?.success?

    said
  end

  def assert_match(wanted, said)
    raise "'#{said}' lacks '#{wanted}'" unless said.include?(wanted)
  end
end

ENV["MEDLEY_BUNDLE"] = BUNDLE
load FORMULA
raise "another url: #{Medley.url}" unless Medley.url == "file://#{BUNDLE}"

Dir.mkdir(PREFIX)
Dir.chdir(PREFIX) do
  system("tar", "-x", "-f", BUNDLE, exception: true)
  # Homebrew runs `install` in the only folder that the archive has.
  Dir.chdir(Dir["medley-*"].fetch(0)) { Medley.new.install }
end
Medley.new.instance_exec(&Medley.tests)
puts "Homebrew: the formula's steps installed it, and its test passed, with a stand-in for Homebrew"
