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
    npm ci --no-audit --no-fund --loglevel=error >&2 </dev/null
  fi
}

need_browsers() {
  local missing
  missing=$(python -c '
from tilewright.hosts.browser_find import KINDS, find
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
