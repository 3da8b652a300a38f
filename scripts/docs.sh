#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The documentation as a site: docs/, the top folder's pages, and the sources, examples and results that they link to.
#
#   scripts/docs.sh OUTPUT_FOLDER      OUTPUT_FOLDER/index.html; a broken link, or a page that mkdocs.yml does not list, fails
set -euo pipefail
readonly output=${1:?usage: docs.sh OUTPUT_FOLDER}
cd "$(dirname "$0")/.."
readonly pages=$output.source

if ! command -v mkdocs >/dev/null; then
  echo "error: docs: mkdocs is missing; apt-get install mkdocs" >&2
  exit 1
fi
for page in docs/*.md; do
  if ! grep -q ": ${page#docs/}\$" mkdocs.yml; then
    echo "error: docs: mkdocs.yml does not list $page; add it to nav" >&2
    exit 1
  fi
done

# All pages lie in one folder of the site, README.md as its first.
rm -rf "$pages"
mkdir -p "$pages/bench"
cp -r docs/*.md docs/images CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE examples "$pages"
cp -r bench/results bench/README.md "$pages/bench"
cp README.md "$pages/index.md"
sed -i -e 's|](docs/|](|g' -e 's|](\.\./|](|g' -e 's|](README\.md|](index.md|g' -e 's|](bench/results/\?)|](bench/README.md)|g' "$pages"/*.md
find "$pages/examples" -name '*.md' -exec sed -i -E 's|\]\(((\.\./)+)docs/|](\1|g' {} +
# Sources and READMEs are part of the site as they are, those that a page links to. What is not there stays a broken link.
grep -rohE --include='*.md' '\]\((\.\./)*(fullshard|tests|tools|scripts|cmake)/[^)#]*\.(h|cc|cu|py|sh|cmake|md)' "$pages" |
  sed -E 's|^\]\((\.\./)*||' | sort -u |
  while read -r source; do
    [[ ! -f $source ]] || install -D -m 644 "$source" "$pages/$source"
  done
mkdocs build --quiet --strict --config-file mkdocs.yml --site-dir "$(realpath -m "$output")"
echo "docs: $output/index.html"
