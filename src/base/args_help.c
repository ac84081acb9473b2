#include "base/args.h"

#include "base/text.h"

#include <stdlib.h>
#include <sys/ioctl.h>

enum { HELP_TEXT = 37, HELP_LEAST = 60, HELP_USUAL = 80 }; /* columns */

/* The columns of the terminal; a file or a pipe has as many as most of them. */
static int help_width(FILE *to) {
    struct winsize size;
    const char *set = getenv("COLUMNS");
    int width = set ? atoi(set) : 0;
    if (width <= 0 && ioctl(fileno(to), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width <= 0)
        width = HELP_USUAL;
    return width < HELP_LEAST ? HELP_LEAST : width;
}

void gw_args_help(const gw_opt *opts, const char *prefix, FILE *to) {
    int width = help_width(to);
    for (const gw_opt *o = opts; o && o->name; o++) {
        const char *meta = gw_opt_meta(o);
        bool shown = o->def && *o->def && o->type != GW_OPT_FLAG;
        char left[128], text[1024];
        if (o->group)
            fprintf(to, "%s%s:\n", o == opts ? "" : "\n", o->group);
        snprintf(left, sizeof left, "  %s%s%s%s", prefix, o->name,
                 !meta     ? ""
                 : *prefix ? " "
                           : "=",
                 meta ? meta : "");
        snprintf(text, sizeof text, "%s%s%s%s", o->help, shown ? " [" : "", shown ? o->def : "",
                 shown ? "]" : "");
        int at = fprintf(to, "%-*s ", HELP_TEXT - 1, left);
        gw_text_wrap(to, text, at, HELP_TEXT, width);
    }
}
