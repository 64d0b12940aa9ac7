#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a suite needs and this machine lacks: deps.sh test | bench
set -euo pipefail

# What is looked for, and the package that has it.
case "$1" in
test)
	wanted="/etc/ssl/certs/ca-certificates.crt:ca-certificates gcc:gcc /usr/include/stdlib.h:libc6-dev clang-19:clang-19
		llvm-strip-19:llvm-19 /usr/include/bpf/bpf_helpers.h:libbpf-dev nft:nftables conntrack:conntrack ip:iproute2
		nginx:nginx-light gunicorn:gunicorn curl:curl git:git"
	;;
bench) wanted="tcplife-bpfcc:bpfcc-tools bpftrace:bpftrace /usr/share/doc/linux-headers-amd64:linux-headers-amd64" ;;
*)
	echo "usage: $0 test | bench" >&2
	exit 2
	;;
esac

PATH=$PATH:/usr/sbin:/sbin
missing=()
for want in $wanted; do
	what=${want%%:*}
	[ -e "$what" ] || command -v "$what" >/dev/null || missing+=("${want#*:}")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as=()
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
		echo "NOT INSTALLED, it takes root: ${missing[*]}. Tests that need them will fail." >&2
		exit 0
	fi
	as=(sudo)
fi
if ! command -v apt-get >/dev/null; then
	echo "These are missing, by the names of their Debian packages: ${missing[*]}. Install them with this system's own tool." >&2
	exit 0
fi

echo "Installing ${missing[*]}"
# A service that a package brings is not wanted: nothing starts now, nor at the next boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap '"${as[@]}" rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' | "${as[@]}" tee $policy >/dev/null
	"${as[@]}" chmod 755 $policy
fi
"${as[@]}" apt-get update -q
"${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
case " ${missing[*]} " in
*' nginx-light '*) ! command -v systemctl >/dev/null || "${as[@]}" systemctl disable nginx >/dev/null 2>&1 || true ;;
esac
