/* Every MPI object that this program makes and has not freed. Linked into a program, objects.c
 * stands below gradwire's own layer of wrappers (MPI_X, which calls PMPI_X): it defines PMPI_X
 * where there is such a wrapper, MPI_X where there is none, and shares nothing with it. */
#ifndef GW_TESTS_OBJECTS_H
#define GW_TESTS_OBJECTS_H

#include <stdint.h>
#include <stdio.h>

typedef enum object_kind {
    OBJECT_REQUEST,    /* under way, or complete and not yet asked for */
    OBJECT_PERSISTENT, /* a request that outlives its completions */
    OBJECT_COMM,
    OBJECT_TYPE,
    OBJECT_OP,
    OBJECT_WINDOW,
    OBJECT_GROUP,
    OBJECT_KINDS
} object_kind;

typedef struct object_count {
    int64_t live, made;
} object_count;

const char *object_name(object_kind kind);

/** By kind. Any thread. */
void object_counts(object_count out[OBJECT_KINDS]);

/** A line an object that lives: its kind and the function that made it. */
void object_list(FILE *to);

#endif
