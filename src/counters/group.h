/** Event groups: what to count on a CPU family and how to interpret it. Text files in
 *  src/counters/groups/, built into the program; the README there explains the format. */
#ifndef GW_COUNTERS_GROUP_H
#define GW_COUNTERS_GROUP_H

#include "counters/expr.h"
#include "counters/sanity.h"

enum {
    GW_GROUP_EVENTS = 8,   /* of the user's; a group of a file has at most GW_GROUP_HARDWARE */
    GW_GROUP_HARDWARE = 4, /* any CPU counts so many at once */
    GW_GROUP_NAMES = 4,    /* PAPI names of an event */
    GW_GROUP_FIGURES = 4,
    GW_GROUPS = 4, /* in a file */
    GW_GROUP_NAME = 32,
    GW_EVENT_NAME = 96
};

typedef struct gw_group_event {
    char name[GW_EVENT_NAME]; /* in formulas and as a column */
    gw_sanity sanity;         /* the kernel that checks it */
    int names;
    char papi[GW_GROUP_NAMES][GW_EVENT_NAME]; /* in the order to try them */
} gw_group_event;

typedef enum gw_bound { GW_BOUND_NONE, GW_BOUND_LOWER, GW_BOUND_UPPER } gw_bound;

typedef struct gw_group_figure {
    char name[GW_GROUP_NAME];
    gw_expr value; /* over the group's events, by index */
} gw_group_figure;

typedef struct gw_group {
    char name[GW_GROUP_NAME];
    int events, figures;
    gw_group_event event[GW_GROUP_EVENTS];
    gw_expr memory; /* fraction of time waiting for memory; no steps: none */
    gw_bound bound; /* whether it is only a bound */
    gw_group_figure figure[GW_GROUP_FIGURES];
} gw_group;

/** A CPU as /proc/cpuinfo describes it; -1: not given. */
typedef struct gw_cpu {
    char vendor[24]; /* "" on Arm */
    int family, model, implementer, part;
} gw_cpu;

/** This machine's; `path` NULL: /proc/cpuinfo. */
gw_cpu gw_cpu_read(const char *path);

/** What a run counts. */
typedef struct gw_group_choice {
    char name[256]; /* of the file, as the user or the CPU chose it; "" : none */
    bool named;     /* by the user: an event that cannot be counted is an error */
    int groups;
    gw_group group[GW_GROUPS];
    char reason[256]; /* why groups is 0 */
} gw_group_choice;

/** Parse the text of a group file named `path`. All its groups, and whether it is for `cpu`.
 *  GW_ERR_INPUT with the number of the bad line. */
gw_err gw_group_parse(gw_group_choice *out, bool *fits, const gw_cpu *cpu, const char *path,
                      const char *text);

/** Choose by the options --papi-group (`group`: "auto", "none", NAME, NAME/GROUP or a file's path)
 *  and --papi-events (`events`: comma-separated PAPI names, NULL: none). "auto" without events
 *  means the memory group of this CPU's file, or nothing and a reason; with events it means only
 *  these. *out: free(). GW_ERR_USAGE, GW_ERR_INPUT. */
gw_err gw_group_choose(gw_group_choice **out, const char *group, const char *events);

/** A group file built into the program. */
typedef struct gw_group_text {
    const char *name, *text;
} gw_group_text;
extern const gw_group_text gw_group_texts[];
extern const int gw_group_text_count;

#endif
