#!/bin/bash
# Every C file is as clang-format leaves it. Versions format a little differently, so one is fixed.
set -euo pipefail
cd "$SOURCE"

version=14
tool=$(command -v clang-format-$version || command -v clang-format || true)
if [ -z "$tool" ] || ! "$tool" --version | grep -q "version $version\."; then
    echo "FAIL: no clang-format $version on this machine: install clang-format-$version" >&2
    exit 1
fi

# The check itself must be able to fail.
if printf 'int  x ;\n' | "$tool" --dry-run -Werror --assume-filename=x.c 2>/dev/null; then
    echo "FAIL: $tool finds nothing wrong with a badly formatted line" >&2
    exit 1
fi

mapfile -t files < <(find src compress comm examples tests -name '*.[ch]' -o -name '*.cpp' | sort)
if [ ${#files[@]} -eq 0 ]; then
    echo "FAIL: no C files below $SOURCE" >&2
    exit 1
fi
if ! "$tool" --dry-run -Werror "${files[@]}"; then
    echo "FAIL: format these with $tool -i" >&2
    exit 1
fi
echo "${#files[@]} files are well formatted"
