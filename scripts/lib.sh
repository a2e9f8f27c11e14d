# shellcheck shell=bash
# Helpers that the scripts of this project share. Source it; it changes nothing by itself.

die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# need_packages NAME… installs the Debian packages that are missing, and is cheap when none is.
need_packages() {
	local p missing=()
	command -v dpkg-query >/dev/null || die "this needs Debian or Ubuntu; install by hand: $*"
	for p; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) == installed ]] || missing+=("$p")
	done
	((${#missing[@]})) || return 0
	((EUID == 0)) || die "not root, and these packages are missing: ${missing[*]}"
	echo "installing ${missing[*]}" >&2
	apt_get install "${missing[@]}" ||
		{ apt_get update && apt_get install "${missing[@]}"; } ||
		die "could not install ${missing[*]}"
}

# apt_get waits for another apt on the same machine instead of failing on its lock.
apt_get() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
		-o APT::Install-Recommends=false -y "$@" >&2
}

# need_go [GO.MOD] leaves a go in PATH that can build the module: the one that is there, else the
# distribution's, which then fetches the version that go.mod names.
need_go() {
	local mod=${1:-$(dirname "${BASH_SOURCE[0]}")/../go.mod} want have
	want=$(awk '$1 == "go" { print $2; exit }' "$mod")
	if ! command -v go >/dev/null && [[ -x /usr/local/go/bin/go ]]; then
		PATH=/usr/local/go/bin:$PATH
	fi
	if ! command -v go >/dev/null; then
		need_packages golang-go
		# A go before 1.21 cannot fetch a newer one.
		at_least "$(go_version)" 1.21 || go_from_backports ||
			die "Go $(go_version) is too old to fetch Go $want; install Go 1.21 or newer"
	fi
	have=$(go_version)
	# GOTOOLCHAIN=local, wherever it is set, would refuse go.mod instead of fetching.
	at_least "$have" "$want" || export GOTOOLCHAIN=auto
	export PATH
}

go_version() { GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[^0-9.].*//'; }

at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n1) == "$2" ]]; }

go_from_backports() {
	local suite list=/etc/apt/sources.list.d/toad-backports.list
	suite=$(. /etc/os-release && echo "${VERSION_CODENAME}-backports")
	if ! apt-cache policy | grep -q "$suite"; then
		echo "deb $(apt_mirror) $suite main" >"$list"
		apt_get update
	fi
	apt_get install -t "$suite" golang-go && at_least "$(go_version)" 1.21
}

# apt_mirror prints the Debian archive this machine itself uses, or nothing where it uses none.
apt_mirror() {
	local f files=()
	for f in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
		[[ -r $f ]] && files+=("$f")
	done
	((${#files[@]})) || return 0
	awk '
		/^[ \t]*#/ { next }
		tolower($1) == "uris:" { print $2 }
		$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^[a-z+]+:/) { print $i; next } }
	' "${files[@]}" | grep -E '/debian/?$' | head -n1 || true
}

# apt_options prints, one a line, what this machine's apt must be told to reach its archive.
apt_options() { apt-config dump | grep -E '^Acquire::(https?::.*Proxy|Check-)' || true; }

# cgroup2 prints where the unified hierarchy is mounted; it is not everywhere the same.
cgroup2() {
	awk '{ for (i = 7; i < NF; i++) if ($i == "-" && $(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo
}

# wait_for SECONDS CMD… polls in short steps until CMD succeeds.
wait_for() {
	local end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
	shift
	until "$@"; do
		((${EPOCHREALTIME/[.,]/} < end)) || return 1
		sleep 0.03
	done
}
