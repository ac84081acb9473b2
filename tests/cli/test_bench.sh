#!/bin/bash
# gradwire bench codec: the table's columns, the JSON file, and one line for each wrong argument.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

die() {
    echo "FAIL: $*" >&2
    exit 1
}

"$PROGRAM" bench codec --sizes 4000,64K --repeats 2 --codecs 'none;fp16;qsgd:bits=4;onebit;powersgd' \
    --json "$dir/out.json" >"$dir/table" 2>"$dir/err" || die "bench codec: $(cat "$dir/err")"
for column in codec bytes bits/el 'enc GB/s' 'enc+EF' 'd+a GB/s' 'x memcpy' error; do
    grep -qF "$column" "$dir/table" || die "no column '$column'"
done
[ "$(grep -cE '^(none|fp16|qsgd:bits=4|onebit|powersgd) +[0-9]+ ' "$dir/table")" = 10 ] || die "not ten rows"
grep -qE '^none +65536 +32\.000 .* 0\.000e\+00$' "$dir/table" || die "none: 32 bits, no error"
grep -qE '^fp16 +65536 +16\.000 ' "$dir/table" || die "fp16: 16 bits"
# Error feedback is measured where it is needed: of what is biased.
[ "$(grep -vE '^powersgd' "$dir/table" | grep -cE ' - +- ')" = 6 ] || die "enc+EF: not six rows without"
[ "$(grep -cE '^powersgd .* - +- .* - +- ' "$dir/table")" = 2 ] || die "powersgd: more than enc+EF"
grep -qE '^onebit .* - ' "$dir/table" && die "enc+EF: none of onebit"
grep -qE '^qsgd:bits=4 +65536 +4\.062 ' "$dir/table" || die "qsgd: 4.06 bits"

python3 - "$dir/out.json" <<'PY' || die "the JSON file"
import json, sys
doc = json.load(open(sys.argv[1]))
assert doc["benchmark"] == "codec" and doc["schema"] == 1 and doc["repeats"] == 2, doc
assert len(doc["results"]) == 10
for row in doc["results"]:
    assert row["bits_per_element"] == 8 * row["wire_bytes"] / (row["bytes"] / 4), row
    assert 0 <= row["relative_error"] < 1, row
    assert (row["encode_feedback"] is None) == (row["codec"] not in ("onebit", "powersgd")), row
    assert (row["encode"] is None) == (row["codec"] == "powersgd"), row
    for f in filter(None, (row[op] for op in ("encode", "encode_feedback", "decode_add"))):
        assert 0 < f["min_s"] <= f["median_s"] and 0 < f["memcpy_min_s"] <= f["memcpy_median_s"]
        assert abs(f["over_memcpy_min"] * f["min_s"] / f["memcpy_min_s"] - 1) < 1e-9, f
        assert abs(f["gb_per_s"] * f["median_s"] * 1e9 / row["bytes"] - 1) < 1e-9, f
PY

# Another scale, here of denormals: the ratio of the error stays.
"$PROGRAM" bench codec --sizes 4000 --repeats 1 --codecs none --scale 1e-36 >"$dir/table" ||
    die "bench codec --scale"
grep -qE '^none +4000 +32\.000 .* 0\.000e\+00$' "$dir/table" || die "none at another scale"

# Without --codecs: every registered codec.
"$PROGRAM" bench codec --sizes 4000 --repeats 1 --threads 2 >"$dir/table" || die "default codecs"
sed -n 's/^X(\(.*\))$/\1/p' "$SOURCE/compress/codecs.def" | while read -r name; do
    grep -q "^$name " "$dir/table" || die "codec $name is missing"
done || exit 1

refused() { # WORD_IN_MESSAGE ARGUMENTS...
    local word=$1
    shift
    "$PROGRAM" bench "$@" >"$dir/out" 2>"$dir/err"
    local status=$?
    [ $status = 2 ] || die "bench $*: exit status $status"
    [ -s "$dir/out" ] && die "bench $*: prints on stdout"
    [ "$(wc -l <"$dir/err")" = 1 ] || die "bench $*: not one line: $(cat "$dir/err")"
    grep -qF -- "$word" "$dir/err" || die "bench $*: no '$word' in: $(cat "$dir/err")"
}

refused "which benchmark"
refused "'codec'" codex
refused codec nonesuch
refused spare codec spare
refused repeats codec --repeats 0
refused repeats codec --repets 3
refused threads codec --threads many
refused scale codec --scale 0
refused sizes codec --sizes 4K,
refused sizes codec --sizes 3
refused qsgd codec --codecs 'none;qsdg'
refused bits codec --codecs 'qsgd:bits=9'
refused codec codec --codecs 'none;'
refused 'multiple of 4' codec --sizes 10
refused "$dir/no/such" codec --sizes 4000 --repeats 1 --json "$dir/no/such/file.json"
GW_SIMD=mmx refused GW_SIMD codec
[ -e "$dir/no" ] && die "a refused run left files"
echo "bench: passed"
