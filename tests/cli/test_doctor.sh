# gradwire doctor: one report, every line there, each finding with its remedy.
set -u
fail() {
    printf 'FAIL: %s\n' "$*" >&2
    exit 1
}
topics='cores busy cpu mpi transport mpi.threads progress gemm variables clock counters memory data'

# whole COMMAND...: its report, each finding and each remedy on one line.
whole() {
    "$@" >"$dir/report" || return
    sed -E ':a; N; s/\n {21,}([^ ])/ \1/; ta; P; D' "$dir/report"
}

# A report $1 must hold each topic once at least, and a tally; as printed, no line beyond 80 columns but
# for a path, and counters that are absent with their cause once.
check_report() {
    for topic in $topics; do
        grep -Eq "^(ok|note|problem) +$topic +[^ ]" <<<"$1" || fail "no line '$topic' in: $1"
    done
    [ "$(grep -Ec '^[0-9]+ ok, [0-9]+ notes?, [0-9]+ problems?$' <<<"$1")" = 1 ] ||
        fail "not one tally in: $1"
    ! grep -E '.{81}' "$dir/report" | grep -Evq '[^ ]{40}' || fail "a line beyond 80 columns in: $1"
    if grep -q '^note *counters' <<<"$1"; then
        [ "$(grep -Ev '^[a-z]+ +busy ' <<<"$1" |
            grep -Ec 'cannot be counted|absent|^note +(memory|event|perf)')" = 1 ] ||
            fail "the cause of absent counters not once in: $1"
        ! grep -Eq '^ok +(papi|perf) ' <<<"$1" || fail "counters are absent, and this is ok: $1"
    fi
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

unset OMP_NUM_THREADS OMP_PROC_BIND MPIR_CVAR_ASYNC_PROGRESS

report=$(whole "$PROGRAM" doctor) || fail "exit status $? when run serially"
check_report "$report"
grep -q '^1 rank on 1 host, 1 thread each$' <<<"$report" || fail "wrong size in: $report"
grep -Eq 'timing a region costs [0-9]+ ns' <<<"$report" || fail "no cost of timing in: $report"
grep -Eq 'hardware counters (count|absent: .+)' <<<"$report" || fail "counters in: $report"

grep -Eq '^(ok|note) +library +.*(MPI library|mpi4py)' <<<"$report" || fail "nothing of the library in: $report"

# Names that PAPI knows and the kernel does not count.
other=spr
grep -q GenuineIntel /proc/cpuinfo && other=amd64_fam19h_zen4
report=$(LIBPFM_FORCE_PMU=$other whole "$PROGRAM" doctor) || fail "exit status $? with LIBPFM_FORCE_PMU"
check_report "$report"
grep -Eq '^(ok|note) +memory +memory-bound time: source twin.model' <<<"$report" ||
    fail "memory-bound time is not absent: $report"
grep -Eq '(^note +counters|counters \(ctr\)) .*absent: .+' <<<"$report" || fail "no reason: $report"

report=$(whole "$MPIEXEC" -n 2 "$PROGRAM" doctor --threads 4096) || fail "exit status $? on 2 ranks"
check_report "$report"
[ "$(grep -c '^2 ranks on 1 host, 4096 threads each$' <<<"$report")" = 1 ] ||
    fail "not one report of 2 ranks in: $report"
grep -A1 '^problem  cores ' <<<"$report" | grep -q ' -> ' || fail "no remedy in: $report"

report=$(MPIR_CVAR_ASYNC_PROGRESS=1 OMP_NUM_THREADS=3 whole "$PROGRAM" doctor) || fail "exit status $?"
grep -A1 '^problem  progress ' <<<"$report" | grep -q ' -> unset' || fail "no warning: $report"
grep -q '3 threads each' <<<"$report" || fail "OMP_NUM_THREADS is ignored: $report"

report=$(OPENBLAS_CORETYPE=Haswell whole "$PROGRAM" doctor) || fail "exit status $?"
grep -q '^note     variables   OPENBLAS_CORETYPE=Haswell' <<<"$report" || fail "not named: $report"
report=$(GW_OPENBLAS_MENDED=Prescott OPENBLAS_CORETYPE=Haswell whole "$PROGRAM" doctor) || fail "exit status $?"
! grep -q 'variables .*OPENBLAS_CORETYPE' <<<"$report" || fail "gradwire's own setting is to be unset: $report"

report=$(SLURM_STEP_NUM_TASKS=4 whole "$PROGRAM" doctor) || fail "exit status $?"
grep -A1 '^problem  launcher    it started several programs (SLURM_STEP_NUM_TASKS=4' <<<"$report" | grep -q ' -> .*--mpi=pmi2' ||
    fail "a launcher that does not fit is not named: $report"

for ranks in 1 2; do
    said=$("$MPIEXEC" -n $ranks "$PROGRAM" doctor --threads none 2>&1 >/dev/null)
    [ $? = 2 ] || fail "a bad option must give exit status 2"
    [ "$(grep -c '^gradwire: .*threads=none' <<<"$said")" = 1 ] || fail "not one line: $said"
done
exit 0
