/* How a family of models writes reasoning and calls of tools, told from its chat template's text.
 *
 * Models are trained to write a call between marks of their own: as a JSON object, as a name and
 * then JSON, as XML-like elements, or on a channel. A format is a row of a table that says with
 * which marks; reply.h reads by it. Pure; everything returned is static. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum tool_style {
    TOOL_STYLE_JSON,     /* {"name": …, "arguments": {…}}, or a list of such */
    TOOL_STYLE_NAMED,    /* the name, a mark, the arguments as JSON */
    TOOL_STYLE_ELEMENTS, /* the name, then an element for each argument */
    TOOL_STYLE_DICT,     /* the name, then {key:value,…}; texts stand in separator[0] */
    TOOL_STYLE_CHANNELS, /* harmony: messages with headers, calls are those with a recipient */
};

enum { TOOL_MARKS_MAX = 8, TOOL_FORMS_MAX = 8 };

/* Elements of TOOL_STYLE_ELEMENTS, in their order; "": nothing stands there. */
struct tool_elements {
    const char *name_open, *name_close;
    const char *key_open, *key_close;
    const char *value_open, *value_close;
    const char *close;
    bool value_on_lines; /* a line feed after value_open and before value_close is not the value's
                          */
    /* Attributes stand behind name_close and key_close up to this mark; NULL: there are none. */
    const char *attributes_end;
    const char *text_attribute;         /* a value with it is a text, one with any other is JSON */
    const char *json_open, *json_close; /* all arguments at once, as JSON; NULL: not so */
    bool has_entities;                  /* in names and keys: &quot; and &amp; */
    bool closed_by_key;                 /* a value ends with value_close, its key and key_close */
};

struct think_marks {
    const char *begin, *end;
    bool anywhere; /* not only where a reply begins */
};

struct tool_format {
    const char *name;
    enum tool_style style; /* after a mark; where '{' or '[' follows it: always as JSON */
    const char *begin[TOOL_MARKS_MAX];     /* marks that begin a call */
    const char *gap[TOOL_MARKS_MAX];       /* marks around calls that say nothing themselves */
    const char *silent[TOOL_MARKS_MAX];    /* marks in a text that say nothing, tools or not */
    const char *separator[TOOL_MARKS_MAX]; /* between name and arguments */
    const char *prefix;                    /* of names, not part of them */
    const char *type;                      /* stands where the name does, which then follows */
    /* Special tokens that those marks are made of, where no token is a mark itself. */
    const char *tokens[TOOL_MARKS_MAX];
    /* How a call is written, told to a model whose template shows the calls that were made but not
     * the tools; NULL: such a model is asked for calls of the generic format. */
    const char *told;
    const char *opening; /* of a call as JSON: what a prompt ends with to have one in any case */
    const struct tool_elements *elements;
    const struct think_marks *think; /* NULL: those that stand in the template */
    /* How a call that the model chooses to make goes on behind its mark (the forms of
     * GRAMMAR_CALLS, grammar.h); none: it cannot be held to a schema. */
    const char *call_begin[TOOL_MARKS_MAX]; /* NULL: `begin` */
    const char *call_forms[TOOL_FORMS_MAX];
    const char *call_headers[TOOL_MARKS_MAX]; /* calls begin in headers between these */
    bool is_not_own;   /* those forms are not what the model has learned: only where asked for */
    bool ends_thought; /* a call may begin in the reasoning, and ends it */
    bool bare;         /* a reply that begins with '{' may be a call */
    bool asks_name;    /* only what names one of the request's tools is a call */
};

/* What a chat template's text tells. */
struct template_traits {
    const struct tool_format *format; /* never NULL */
    const struct think_marks *think;  /* NULL: it does not reason between marks */
    bool knows_tools;                 /* it renders `tools` by itself */
    bool arguments_as_text;           /* calls in messages: arguments are a text, not an object */
    /* The variables that say how much it reasons, and whether; NULL: it has none. */
    const char *effort, *thinking;
};

/* `text` NULL: the fallback's. */
struct template_traits template_traits_of(const char *text, size_t size);
/* The same for a model that is given tools: their format is the one that it is told. */
struct template_traits template_traits_with_tools(struct template_traits traits);
/* By its name, for tests; NULL: there is none. */
const struct tool_format *tool_format_named(const char *name);
/* Whether a special token of that text is a mark that a reader of replies needs to see. */
bool template_traits_show(const struct template_traits *traits, const char *text, size_t size);
