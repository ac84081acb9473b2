/* gradwire doctor: what will limit a run here, and what to do about it. */
#include "base/text.h"
#include "cli/cli.h"
#include "counters/counters.h"
#include "counters/papi.h"
#include "data/data.h"
#include "machine/busy.h"
#include "machine/host.h"
#include "mpi/agree.h"
#include "mpi/launcher.h"
#include "mpi/world.h"
#include "nn/gemm.h"
#include "nn/openblas.h"
#include "prof/clock.h"
#include "prof/ledger.h"
#include "roofline/ceilings_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

static const gw_opt options[] = {
    {"threads", GW_OPT_INT, NULL, 1, 4096, NULL, NULL,
     "OpenMP threads per rank that the run will use [OMP_NUM_THREADS, else 1]"},
    {"busy", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "only print what else the machine is doing, as JSON"},
    {0}};

typedef enum verdict { OK, NOTE, PROBLEM, VERDICTS } verdict;
static int tally[VERDICTS];
#define MODELLED "memory-bound time: source twin+model where a run has ceilings, else none"
static const char lower_paranoid[] = "sysctl kernel.perf_event_paranoid=1 (as root) or CAP_PERFMON";

/* One finding; `remedy` (NULL: none) says what to do about it. */
__attribute__((format(printf, 4, 5))) static void
doctor_say(verdict v, const char *topic, const char *remedy, const char *fmt, ...) {
    enum { TEXT = 21, REMEDY = 23, WIDTH = 80 }; /* columns */
    static const char *const words[] = {"ok", "note", "problem"};
    char text[1024];
    va_list ap;
    tally[v]++;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printf("%-8s %-11s ", words[v], topic);
    gw_text_wrap(stdout, text, TEXT, TEXT, WIDTH);
    if (remedy) {
        printf("%-20s-> ", "");
        gw_text_wrap(stdout, remedy, REMEDY, REMEDY, WIDTH);
    }
}

/* The value of environment variable `name`, NULL when unset or empty. */
static const char *doctor_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The line of `text` that begins with `key` (behind the key, without leading blanks) into `out`. */
static bool doctor_find_line(const char *text, const char *key, char *out, size_t room) {
    const char *at = strstr(text, key);
    if (!at)
        return false;
    at += strlen(key);
    at += strspn(at, " \t");
    snprintf(out, room, "%.*s", (int)strcspn(at, "\n"), at);
    return true;
}

static void doctor_check_cores(const gw_host *host, const gw_host_node *node) {
    char cores[48] = "", load[160];
    if (host->cores_usable > 0 && host->cores_usable != host->cpus_usable)
        snprintf(cores, sizeof cores, " (%d core%s)", host->cores_usable,
                 host->cores_usable == 1 ? "" : "s");
    snprintf(load, sizeof load, "%d rank%s, %d thread%s on %d usable CPU%s%s", node->sharers,
             node->sharers == 1 ? "" : "s", node->threads, node->threads == 1 ? "" : "s",
             node->cpus, node->cpus == 1 ? "" : "s", cores);
    if (gw_host_oversubscribed(node))
        doctor_say(
            PROBLEM, "cores",
            "use fewer ranks or threads, or bind ranks to more CPUs (mpiexec -bind-to none): "
            "spinning waits starve the others",
            "%s: some CPU must carry %d threads", load, node->threads_per_cpu);
    else
        doctor_say(OK, "cores", NULL, "%s of %d", load, host->cpus_online);
    if (host->cpu_quota >= 0 && host->cpu_quota < node->threads)
        doctor_say(PROBLEM, "cores",
                   "raise the container's CPU limit or use fewer ranks or threads",
                   "the control group allows %.2f CPUs' worth of time for %d threads",
                   host->cpu_quota, node->threads);
}

static void doctor_check_busy(const gw_busy *b) {
    char text[GW_BUSY_TEXT];
    gw_busy_text(b, text, sizeof text);
    verdict v = gw_busy_warns(b) ? PROBLEM : b->others > GW_BUSY_LACK * b->cpus ? NOTE : OK;
    doctor_say(v, "busy", v == OK ? NULL : "end what else runs (see top), or wait until it is done",
               "%s", text);
}

static void doctor_check_cpu(const gw_host *host) {
    doctor_say(OK, "cpu", NULL, "%s, %.1f GiB memory, host %s",
               *host->cpu_model ? host->cpu_model : "model unknown",
               (double)host->memory / (1u << 30), host->name);
    if (*host->governor && strcmp(host->governor, "performance") != 0)
        doctor_say(NOTE, "cpu", "for measurements: cpupower frequency-set -g performance (as root)",
                   "frequency governor '%s': the first steps may run slower", host->governor);
}

static void doctor_check_launcher(void) {
    const char *told = gw_launcher_foreign(), *other = gw_launcher_other();
    if (other && !told)
        doctor_say(PROBLEM, "launcher", gw_launcher_right(),
                   "it is %s's, and this is another library: its ranks do not see each other",
                   other);
    if (told)
        doctor_say(PROBLEM, "launcher", gw_launcher_right(),
                   "it started several programs (%s=%s), but this one sees itself alone", told,
                   doctor_variable(told));
}

static void doctor_check_mpi(const gw_host_node *node) {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    char first[128] = "", device[64] = "";
    int len = 0, major = 0, minor = 0;
    MPI_Get_library_version(text, &len);
    MPI_Get_version(&major, &minor);
    doctor_find_line(text, "", first, sizeof first);
    for (char *c = first; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    if (MPI_VERSION >= 4)
        doctor_say(OK, "mpi", NULL, "%s (MPI %d.%d)", first, major, minor);
    else
        doctor_say(NOTE, "mpi", "for both a library of MPI 4, such as MPICH 4",
                   "%s (MPI %d.%d): no algo=persistent, and algo=native sums at most 2^31 - 1 "
                   "elements at once",
                   first, major, minor);

    const char *tls = doctor_variable("UCX_TLS"), *provider = doctor_variable("FI_PROVIDER");
    if (!doctor_find_line(text, "MPICH Device:", device, sizeof device)) {
        doctor_say(NOTE, "transport", "see its own tools, e.g. ompi_info or I_MPI_DEBUG=5",
                   "this MPI library does not tell which transport it uses");
        return;
    }
    doctor_say(OK, "transport", NULL, "%s%s%s%s%s; %s", device, tls ? ", UCX_TLS=" : "",
               tls ? tls : "", provider ? ", FI_PROVIDER=" : "", provider ? provider : "",
               node->nodes == 1 ? "all ranks on one host: shared memory"
                                : "several hosts: the network");
}

static void doctor_check_mpi_threads(int provided) {
    const char *most = provided == MPI_THREAD_SINGLE     ? "single"
                       : provided == MPI_THREAD_FUNNELED ? "funneled"
                                                         : "serialized";
    if (provided == MPI_THREAD_MULTIPLE)
        doctor_say(OK, "mpi threads", NULL, "up to multiple");
    else
        doctor_say(provided == MPI_THREAD_SINGLE ? PROBLEM : NOTE, "mpi threads",
                   "progress threads need an MPI library built with MPI_THREAD_MULTIPLE",
                   "no more than %s", most);

    const char *async = doctor_variable("MPIR_CVAR_ASYNC_PROGRESS");
    if (async && strcmp(async, "0") != 0)
        doctor_say(
            PROBLEM, "progress", "unset it, and use --comm iallreduce:progress=poll",
            "MPIR_CVAR_ASYNC_PROGRESS=%s: a spinning thread a rank takes the cores that compute",
            async);
    else
        doctor_say(OK, "progress", NULL, "MPI starts no progress threads of its own");
}

/* What a program that uses the library meets. Starting mpi4py's MPI would disturb this one's; its
 * name does not need that. */
static void doctor_check_host(int provided) {
    static const char ask[] =
        "python3 -c 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
        "print(MPI.Get_library_version().split(\"\\n\")[0])' 2>/dev/null </dev/null";
    static char own[MPI_MAX_LIBRARY_VERSION_STRING];
    char other[128] = "";
    int len = 0;
    MPI_Get_library_version(own, &len);
    own[strcspn(own, "\n")] = '\0';
    FILE *in = popen(ask, "r");
    if (in && fgets(other, sizeof other, in))
        other[strcspn(other, "\n")] = '\0';
    if (in)
        pclose(in);
    const char *level = provided == MPI_THREAD_MULTIPLE ? "any strategy" : "no progress=thread";
    if (!*other)
        doctor_say(OK, "library", NULL, "this MPI library serves %s; python3 has no mpi4py", level);
    else if (strcmp(own, other) == 0)
        doctor_say(OK, "library", NULL, "this MPI library serves %s; mpi4py's is the same", level);
    else {
        gw_text_line(other);
        doctor_say(NOTE, "library",
                   "let the library start MPI itself (gradwire_start), or build mpi4py with this "
                   "MPI's mpicc",
                   "mpi4py of python3 uses another MPI library: %s", other);
    }
}

static void doctor_check_variables(const gw_host *host, const gw_host_node *node, int threads) {
    static const char *const watched[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                          "MKL_NUM_THREADS", "OPENBLAS_CORETYPE"};
    size_t n = sizeof watched / sizeof *watched;
    int before = tally[NOTE] + tally[PROBLEM];
    if (getenv(GW_OPENBLAS_MARKER))
        n--; /* gradwire itself has set the last one, and says so with the GEMM */
    for (size_t i = 0; i < n; i++)
        if (doctor_variable(watched[i]))
            doctor_say(NOTE, "variables", "unset it unless you mean it: gradwire chooses by itself",
                       "%s=%s", watched[i], doctor_variable(watched[i]));
    const char *omp = doctor_variable("OMP_NUM_THREADS");
    if (omp && atoi(omp) != threads)
        doctor_say(NOTE, "variables", "--threads wins; unset OMP_NUM_THREADS or make them agree",
                   "OMP_NUM_THREADS=%s, --threads %d", omp, threads);
    /* Places are numbered within a process's own CPUs: ranks that share theirs would pin all their
     * threads to the same ones. */
    const char *bind = doctor_variable("OMP_PROC_BIND");
    bool pinned = bind && strcasecmp(bind, "false") != 0;
    bool shared = node->ranks > 1 && host->cpus_usable == node->cpus;
    if (pinned && shared && node->cpus > 1)
        doctor_say(
            PROBLEM, "variables", "bind the ranks too (mpiexec -bind-to core:THREADS), or unset it",
            "OMP_PROC_BIND=%s while the ranks share their CPUs: all pin to the same ones", bind);
    else if (!pinned && threads > 1 && shared)
        doctor_say(NOTE, "variables", "mpiexec -bind-to core:THREADS, with OMP_PROC_BIND=close",
                   "neither ranks nor threads are bound: they may wander over the cores");
    else if (!pinned && threads > 1)
        doctor_say(NOTE, "variables", "export OMP_PROC_BIND=close OMP_PLACES=cores",
                   "OMP_PROC_BIND is not set: threads may wander over the cores");
    if (tally[NOTE] + tally[PROBLEM] == before)
        doctor_say(OK, "variables", NULL, "no variable of OpenMP or the BLAS stands in the way");
}

static void doctor_check_clock(void) {
    gw_ledger_start();
    bool tsc = strcmp(gw_clock_name(), "tsc") == 0;
    doctor_say(tsc ? OK : NOTE, "clock",
               tsc ? NULL
                   : "nothing to do: timing costs some more on a CPU without an invariant TSC",
               "%s; timing a region costs %.0f ns", gw_clock_name(), gw_ledger_region_cost() * 1e9);
}

/* Why nothing counts is told here, once: what follows from it has no lines. True: events count. */
static bool doctor_check_counters(const gw_host *host) {
    static gw_papi_report papi;
    gw_papi_probe(&papi);
    bool closed = host->paranoid_known && host->perf_paranoid > 2;
    if (papi.hardware)
        doctor_say(OK, "counters", NULL, "PAPI %s, hardware counters count", papi.version);
    else if (!host->paranoid_known)
        doctor_say(NOTE, "counters",
                   "a kernel with CONFIG_PERF_EVENTS, or a container that shows /proc/sys",
                   "PAPI %s, hardware counters absent: this kernel has no performance events to "
                   "offer; %s",
                   papi.version, papi.reason);
    else
        doctor_say(NOTE, "counters",
                   closed ? lower_paranoid
                          : "bare metal, or a VM with a virtual PMU; times stay exact without them",
                   "PAPI %s, hardware counters absent: %s%s", papi.version,
                   closed ? "perf_event_paranoid is above 2; " : "", papi.reason);
    char names[2][512] = {"", ""}; /* disabled, enabled */
    for (int i = 0; i < papi.components; i++) {
        const gw_papi_component *c = &papi.component[i];
        char *list = names[c->enabled];
        size_t used = strlen(list);
        snprintf(list + used, sizeof names[0] - used, "%s%s", used ? ", " : "", c->name);
    }
    if (papi.components > 0)
        doctor_say(papi.hardware ? OK : NOTE, "papi", NULL, "components %s%s%s%s",
                   *names[1] ? names[1] : "none", *names[0] ? "; disabled: " : "", names[0],
                   papi.hardware ? "" : "; none counts hardware events");
    if (host->paranoid_known && papi.hardware) {
        bool may = host->perf_paranoid <= 2;
        doctor_say(may ? OK : NOTE, "perf", may ? NULL : lower_paranoid,
                   "perf_event_paranoid %d: a user %s count own programs", host->perf_paranoid,
                   may ? "may" : "may not");
    }
    return papi.hardware;
}

/* Whether a run here can tell memory-bound computation by counters, and what each event lacks. */
static void doctor_check_events(void) {
    gw_group_choice *choice = NULL;
    gw_counters *counters = NULL;
    gw_counters_report report = {0};
    gw_err e = gw_group_choose(&choice, "auto", NULL);
    GW_THEN(e, gw_counters_open(&counters, &report, &gw_counters_papi, choice, 1));
    if (e != GW_OK)
        gw_text_print(report.reason, sizeof report.reason, "%s", gw_err_text());
    static const char *const bounds[] = {"", ", a lower bound", ", an upper bound"};
    if (counters && report.memory)
        doctor_say(OK, "memory", NULL,
                   "memory-bound time: source ctr (hardware counters), group %s%s", choice->name,
                   bounds[report.bound]);
    else
        doctor_say(NOTE, "memory", "--papi-group FILE brings other events",
                   MODELLED "; hardware counters (ctr) absent: %s", report.reason);
    for (int i = 0; i < report.events; i++) {
        const gw_counter_event *of = &report.event[i];
        if (*of->papi)
            doctor_say(OK, "event", NULL, "%s/%s counts as %s", of->group, of->name, of->papi);
        else if (!strstr(report.reason, of->reason)) /* it is told above */
            doctor_say(NOTE, "event", NULL, "%s/%s: %s", of->group, of->name, of->reason);
    }
    if (counters) {
        gw_counters_state state;
        gw_counters_tell(counters, &state);
        doctor_say(OK, "event", NULL, "%s; both edges of a batch take %.1f us", state.why,
                   state.edge_s * 1e6);
    }
    gw_counters_close(counters);
    free(choice);
}

/* What is cached for such runs; measuring is left to them. */
static void doctor_check_ceilings(const gw_host *host, const gw_host_node *node, int threads) {
    char path[GW_CEILINGS_PATH];
    static gw_ceilings c, want;
    const gw_ceiling_pair *dram = &c.level[GW_CACHES].update;
    want = (gw_ceilings){.threads = threads,
                         .all_threads = node->threads,
                         .oversubscribed = gw_host_oversubscribed(node)};
    snprintf(want.host, sizeof want.host, "%s", host->name);
    snprintf(want.cpu, sizeof want.cpu, "%s", host->cpu_model);
    snprintf(want.kernels, sizeof want.kernels, "%s", gw_gemm_library());
    gw_ceilings_cache(&want, path);
    if (!*path)
        doctor_say(NOTE, "ceilings",
                   "set HOME or XDG_CACHE_HOME: each run measures them anew, for a second",
                   "there is no folder to keep them in");
    else if (access(path, F_OK) != 0)
        doctor_say(OK, "ceilings", NULL,
                   "not measured yet for such runs: the first with --out does, to %s", path);
    else if (gw_ceilings_load(&c, path) != GW_OK ||
             gw_ceilings_fit(&c, &want, false, path) != GW_OK)
        doctor_say(NOTE, "ceilings", "nothing to do: the next run with --out measures them anew",
                   "%s", gw_err_text());
    else if (c.fma.all < 0.5 * c.fma.one || dram->all < 0.5 * dram->one)
        doctor_say(NOTE, "ceilings",
                   "remove that file while nothing else runs: the next run with "
                   "--out measures them anew",
                   "%s was measured while others were at work: all %d threads together did less "
                   "than half of what one does alone",
                   path, c.all_threads);
    else {
        char together[96] = "";
        if (c.all_threads > 1)
            snprintf(together, sizeof together, "; all %d together %.0f GFLOP/s, DRAM %.1f GB/s",
                     c.all_threads, c.fma.all * 1e-9, dram->all * 1e-9);
        doctor_say(
            OK, "ceilings", NULL,
            "a thread does %.0f GFLOP/s; updates %.0f GB/s in L1, %.1f in DRAM%s (%.1f hours ago)",
            c.fma.one * 1e-9, c.level[0].update.one * 1e-9, dram->one * 1e-9, together,
            (double)(time(NULL) - c.measured_at) / 3600);
    }
}

static gw_err doctor_diagnose(const gw_args *args, int provided) {
    int rank, ranks, threads = 1;
    GW_TRY(gw_comm_place(MPI_COMM_WORLD, &rank, &ranks));
    const char *omp = doctor_variable("OMP_NUM_THREADS");
    if (gw_args_given(args, "threads"))
        threads = (int)gw_args_int(args, "threads");
    else if (omp && atoi(omp) > 0)
        threads = atoi(omp);
    gw_host_node node;
    gw_busy busy;
    GW_TRY(gw_host_node_of(&node, threads, MPI_COMM_WORLD));
    GW_TRY(gw_busy_for(&busy, 0.4, &node, MPI_COMM_WORLD));
    if (rank == 0 && gw_args_flag(args, "busy")) {
        json_t *all = gw_busy_json(&busy);
        bool printed = all && json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
        json_decref(all);
        return printed && putchar('\n') != EOF ? GW_OK
                                               : gw_fail(GW_ERR_NOMEM, "doctor: out of memory");
    }
    if (rank != 0)
        return GW_OK;
    gw_host host;
    gw_host_facts(&host);
    printf("%d rank%s on %d host%s, %d thread%s each\n\n", ranks, ranks == 1 ? "" : "s", node.nodes,
           node.nodes == 1 ? "" : "s", threads, threads == 1 ? "" : "s");
    doctor_check_cores(&host, &node);
    doctor_check_busy(&busy);
    doctor_check_cpu(&host);
    doctor_check_mpi(&node);
    doctor_check_launcher();
    doctor_check_mpi_threads(provided);
    doctor_check_host(provided);
    const char *warning = gw_gemm_warning();
    if (warning)
        doctor_say(PROBLEM, "gemm", warning, "%s", gw_gemm_library());
    else
        doctor_say(OK, "gemm", NULL, "%s", gw_gemm_library());
    doctor_check_variables(&host, &node, threads);
    doctor_check_clock();
    if (doctor_check_counters(&host))
        doctor_check_events();
    else
        doctor_say(OK, "memory", NULL, MODELLED);
    doctor_check_ceilings(&host, &node, threads);
    const char *dir = gw_data_find_fashion_mnist();
    if (dir)
        doctor_say(OK, "data", NULL, "Fashion-MNIST in %s", dir);
    else
        doctor_say(NOTE, "data",
                   "apt install dataset-fashion-mnist, or put the four IDX files into "
                   "$GW_DATA_DIR/fashion-mnist",
                   "Fashion-MNIST not found; synthetic:... works without files");
    printf("\n%d ok, %d note%s, %d problem%s\n", tally[OK], tally[NOTE],
           tally[NOTE] == 1 ? "" : "s", tally[PROBLEM], tally[PROBLEM] == 1 ? "" : "s");
    return GW_OK;
}

static int doctor(const gw_args *args, int argc, char **argv) {
    (void)argc, (void)argv;
    int provided = MPI_THREAD_SINGLE, rank = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return gw_cli_fail(gw_fail(GW_ERR_MPI, "MPI_Init_thread failed"));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    gw_err e = gw_agree(MPI_COMM_WORLD, GW_OK); /* a rank may have refused its command line */
    GW_THEN(e, gw_cli_alike(&(gw_cli_told){.command = "doctor", .args = args}, MPI_COMM_WORLD));
    GW_THEN(e, doctor_diagnose(args, provided));
    int status = e == GW_OK ? 0 : rank == 0 ? gw_cli_fail(e) : gw_err_status(e);
    gw_world_part(MPI_COMM_WORLD);
    MPI_Finalize();
    return status;
}

const gw_command gw_command_doctor = {
    .name = "doctor",
    .summary = "report what will limit a run on this machine, and what to do about it",
    .usage =
        "[--threads N] [--busy]      (under mpiexec as the run itself: it looks at all its ranks)",
    .notes =
        "Each finding is ok, a note (good to know) or a problem (a run would suffer), with the\n"
        "remedy below it. The exit status is 0 whatever is found.",
    .opts = options,
    .run = doctor,
};
