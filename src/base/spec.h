/** Specs: texts that name a strategy, an algorithm or a codec with its options. One parser turns
 *  the text into a tree, which is passed on; nobody else looks for separators:
 *
 *    list   item ; item ..       or item , item .. if the caller allows that
 *    item   key = chain          a rule, such as layer1=none or *.bias=none; or just a chain
 *    chain  entry + entry ..     qsgd:bits=4+zlib
 *    entry  name : argument = value , argument = value ..
 *
 *  A part that contains separators is written in parentheses, which are dropped:
 *  allreduce:algo=(ring:chunk=64K,window=4). An argument that is itself a spec is an option of type
 *  GW_OPT_SPEC (base/args.h), whose value is a tree, too. */
#ifndef GW_BASE_SPEC_H
#define GW_BASE_SPEC_H

#include "base/err.h"

typedef struct gw_spec_arg {
    const char *name, *value;
} gw_spec_arg;

typedef struct gw_spec {
    const char *text; /* as written, without the parentheses around it */
    const char *name; /* an entry's name; else the text, so that a list, a rule or a chain in place
                         of an entry is not found, and the message quotes all of it */
    gw_spec_arg *arg; /* the n_args arguments of an entry */
    int n_args;
    const char *key;       /* of a rule; NULL: it is no rule */
    struct gw_spec *parts; /* the items of a list, at least one; the chain of a rule; the entries of
                              a chain, at least two. NULL: it is an entry */
    struct gw_spec *next;  /* among the parts of its parent */
} gw_spec;

/** An entry without arguments, for names in the code. */
#define GW_SPEC_NAMED(of)                                                                          \
    (gw_spec) {                                                                                    \
        .text = (of), .name = (of)                                                                 \
    }

typedef enum gw_spec_form {
    GW_SPEC_ONE,    /* one entry: semicolons and '+' are part of its text */
    GW_SPEC_LIST,   /* a list, separated by semicolons */
    GW_SPEC_COMMAS, /* a list, separated by semicolons or commas */
    GW_SPEC_CHAIN   /* a chain of one or more entries */
} gw_spec_form;

enum { GW_SPEC_ITEMS = 64 };

/** Parse `text` into a new tree; free with gw_spec_free. GW_ERR_USAGE: parentheses do not balance,
 *  an item is empty, an argument has no name, too many items; messages name `owner` and its
 *  `option`, and the place. */
gw_err gw_spec_parse(gw_spec **out, const char *owner, const char *option, const char *text,
                     gw_spec_form form);
void gw_spec_free(gw_spec *spec);

#endif
