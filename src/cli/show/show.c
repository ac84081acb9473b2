/* gradwire show: run folders in, where their steps' time went out. */
#include "cli/show/show.h"

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/parallel.h"

#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const gw_opt opts[] = {
    {"ascii", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "letters for bars, whatever the locale"},
    {"json", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "print the figures as JSON"},
    {0}};

/* NO_COLOR: see no-color.org. */
static gw_show_style choose_style(const gw_args *args) {
    struct winsize size = {0};
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    bool terminal = isatty(STDOUT_FILENO);
    bool dumb = term && strcmp(term, "dumb") == 0;
    setlocale(LC_CTYPE, "");
    gw_show_style style = {.utf8 = !gw_args_flag(args, "ascii") &&
                                   strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                           .colours = terminal && !dumb && !(no && *no),
                           .width = 80};
    if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60)
        style.width = size.ws_col;
    return style;
}

static gw_err print(const gw_args *args, gw_show_run *runs, int n) {
    gw_show_style style = choose_style(args);
    if (!gw_args_flag(args, "json")) {
        for (int i = 0; i < n; i++)
            gw_show_run_plain(&runs[i]);
        gw_show_print(runs, n, &style);
        return GW_OK;
    }
    json_t *doc = gw_show_document(runs, n);
    gw_err e = doc && json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0
                   ? GW_OK
                   : gw_fail(GW_ERR_IO, "show: cannot print the figures");
    printf("\n");
    json_decref(doc);
    return e;
}

static gw_err show(const gw_args *args, char **dirs, int n) {
    gw_show_run *runs = NULL;
    if (n == 0)
        return gw_fail(GW_ERR_USAGE, "show: which run? name the folder of 'gradwire train --out'");
    GW_TRY(gw_alloc(&runs, (size_t)n, sizeof *runs));
    gw_err e = GW_OK;
    for (int i = 0; i < n && e == GW_OK; i++)
        e = gw_show_run_open(&runs[i], dirs[i]);
    if (e == GW_OK)
        e = print(args, runs, n);
    for (int i = 0; i < n; i++)
        gw_show_run_close(&runs[i]);
    free(runs);
    return e;
}

static int run(int argc, char **argv) {
    gw_args *args = NULL;
    int dirs = 0;
    gw_err e = gw_args_new(&args, opts);
    if (e == GW_OK)
        e = gw_args_argv(args, "show", argc, argv, &dirs);
    if (e == GW_OK)
        e = show(args, argv + 1, dirs);
    gw_args_free(args);
    return e == GW_OK ? 0 : gw_cli_refuse(e);
}

const gw_command gw_command_show = {
    .name = "show",
    .summary = "print where the time of runs went, from their folders",
    .usage = "RUN... [options]      RUN: what --out of 'gradwire train' named",
    .notes = "Bars share one scale. With colours on a terminal unless NO_COLOR is set.",
    .opts = opts,
    .run = run,
};
