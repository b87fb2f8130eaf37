/* The links of the cluster as a graph for Graphviz: medley links --dot. */
#pragma once

#include "base/error.h"

#include <yyjson.h>

/* Prints the node's answer to "links". */
enum error_code links_print_graph(yyjson_doc *answer, struct error *err);
