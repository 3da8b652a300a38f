#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Debian package and a wheel of a build, both with the commands, the headers, the libraries and the CMake package.
#
#   scripts/package.sh BUILD OUTPUT        OUTPUT/fullshard_VERSION_ARCH.deb, OUTPUT/fullshard-VERSION-py3-none-linux_ARCH.whl
#
# Neither holds libtorch, nor any folder of this machine. The Debian package finds it through the link /usr/lib/torch, the wheel beside
# itself in site-packages.
set -euo pipefail
readonly build=${1:?usage: package.sh BUILD OUTPUT} output=${2:?usage: package.sh BUILD OUTPUT}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
JOBS=${JOBS:-$(nproc)}

cmake --build "$build" -j "$JOBS" --target packaged_programs >/dev/null
# shellcheck source=/dev/null
source "$build/packaged/facts"
: "${version:?}" "${torch:?}"
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
mkdir -p "$output"

cmake --install "$build" --prefix "$staging/usr" >/dev/null
install -s "$build/packaged/fullshard" "$build/packaged/fullshard-core" "$staging/usr/bin/"
strip --strip-debug "$staging"/usr/lib*/libfullshard_*.a "$staging"/usr/lib/*/libfullshard_*.a 2>/dev/null || true

# The package that a library belongs to; nothing where it is none of the distribution's. Where /lib is a link to /usr/lib, packages may
# know a file by the one name or the other.
package_of() { # package_of LIBRARY
  local real
  real=$(readlink -f "$1")
  { dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null || true; } | sed -n '1s/:.*//p'
}

# The packages of the distribution that the programs are linked against; libtorch is none. The name of the others is that of their
# interface; the C and C++ libraries must be as new as here.
depends() {
  ldd "$staging/usr/bin/fullshard" "$staging/usr/bin/fullshard-core" | awk '$3 ~ /^\// { print $3 }' | sort -u |
    while read -r library; do
      package_of "$library"
    done | sort -u | while read -r package; do
    case $package in
      libc6 | libstdc++6 | libgcc-s1) echo "$package (>= $(dpkg-query -W -f '${Version}' "$package" | sed 's/^[0-9]*://; s/-.*//'))" ;;
      *) echo "$package" ;;
    esac
  done | paste -sd, | sed 's/,/, /g'
}

debian_package() {
  local architecture package
  architecture=$(dpkg --print-architecture)
  package=$output/fullshard_${version}_$architecture.deb
  mkdir -p "$staging/deb/DEBIAN"
  cp -a "$staging/usr" "$staging/deb/usr"
  mkdir -p "$staging/deb/usr/share/doc/fullshard"
  cp LICENSE "$staging/deb/usr/share/doc/fullshard/copyright"
  cp CHANGELOG.md README.md "$staging/deb/usr/share/doc/fullshard/"
  cat >"$staging/deb/DEBIAN/control" <<END
Package: fullshard
Version: $version
Architecture: $architecture
Maintainer: The Fullshard authors <fullshard@localhost>
Section: science
Priority: optional
Depends: $(depends)
Recommends: libfmt-dev, libspdlog-dev, libyaml-cpp-dev, nlohmann-json3-dev, liburing-dev, libpcre2-dev, zlib1g-dev, libzstd-dev
Description: FSDP and ZeRO training for C++ programs on libtorch
 The command fullshard, and the library with its CMake package.
 .
 libtorch $torch is not part of it: make /usr/lib/torch a link to the lib folder
 of that version, or name the folder in LD_LIBRARY_PATH.
END
  dpkg-deb --root-owner-group --build "$staging/deb" "$package" >/dev/null
  echo "$package"
}

if command -v dpkg-deb >/dev/null; then
  debian_package
else
  echo "package: no dpkg-deb here, so there is no Debian package" >&2
fi
python3 tools/make_wheel.py --prefix "$staging/usr" --version "$version" --torch "$torch" --output "$output"
