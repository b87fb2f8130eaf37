#include "grammar/calls.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "grammar/compile.h"
#include "grammar/watch.h"

#include <string.h>
#include <yyjson.h>

enum { CALLS_FORM_ITEMS = 32, CALLS_DIGITS = 6, CALLS_WORD = 64, CALLS_TOOLS = 1024 };

struct calls_tool {
    const char *name;
    uint32_t call, arguments; /* rules; 0: not given */
};

struct calls_item { /* of a form */
    char code;      /* 0: text */
    char text[LIMIT_WATCH_MARK_BYTES + 1];
};

struct calls {
    struct grammar *program;
    struct error *err;
    yyjson_val *source;
    struct calls_tool *tools;
    uint32_t n_tools;
    bool many;
    uint32_t end;
    uint32_t *entries; /* scratch: one for each tool */
    struct watch text, thought, header;
};

static enum error_code calls_invalid(struct calls *calls, const char *what)
{
    return error_set(calls->err, ERROR_INVALID, "the calls' %s", what);
}

/* ---- tools ---- */

static enum error_code calls_schema(struct calls *calls, yyjson_val *schema, uint32_t *rule)
{
    struct grammar_source source = {.kind = GRAMMAR_JSON_SCHEMA};
    if (!schema)
        return ERROR_NONE;
    char *text =
        yyjson_val_write_opts(schema, YYJSON_WRITE_NOFLAG, &json_memory, &source.size, NULL);
    if (!text)
        return error_set(calls->err, ERROR_NO_MEMORY, "not enough memory for the tools' schemas");
    source.text = text;
    const enum error_code code = schema_compile(&source, calls->program, calls->err);
    *rule = calls->program->root;
    mem_free(text);
    return code;
}

static enum error_code calls_read_tools(struct calls *calls)
{
    yyjson_val *tools = yyjson_obj_get(calls->source, "tools"), *tool;
    const size_t n = yyjson_arr_size(tools);
    size_t index, max;
    if (!n || n > CALLS_TOOLS)
        return calls_invalid(calls, "tools: an array of 1 to 1024");
    calls->tools = mem_new_array(n, sizeof *calls->tools);
    calls->entries = mem_new_array(n, sizeof *calls->entries);
    if (!calls->tools || !calls->entries)
        return error_set(calls->err, ERROR_NO_MEMORY, "not enough memory for the tools");
    calls->n_tools = (uint32_t)n;
    yyjson_arr_foreach(tools, index, max, tool)
    {
        struct calls_tool *to = &calls->tools[index];
        to->name = yyjson_get_str(yyjson_obj_get(tool, "name"));
        if (!to->name)
            return calls_invalid(calls, "tools: one without a name");
        enum error_code code = calls_schema(calls, yyjson_obj_get(tool, "call"), &to->call);
        if (!code)
            code = calls_schema(calls, yyjson_obj_get(tool, "arguments"), &to->arguments);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

/* ---- forms ---- */

/* The next item of a form; NULL: it is wrong. */
static const char *calls_read_item(const char *form, struct calls_item *item)
{
    size_t size = 0;
    *item = (struct calls_item){0};
    if (form[0] == '%' && form[1] != '(') {
        item->code = form[1];
        return form[1] && strchr("sclnadw.", form[1]) ? form + 2 : NULL;
    }
    const char *stop = "%";
    if (form[0] == '%') {
        item->code = '(';
        form += 2;
        stop = "%)";
    }
    const char *until = strstr(form, stop);
    size = until ? (size_t)(until - form) : strlen(form);
    if (!size || size > LIMIT_WATCH_MARK_BYTES || (item->code && !until))
        return NULL;
    memcpy(item->text, form, size);
    return form + size + (item->code ? 2 : 0);
}

/* A call of any tool as {"name": …, "arguments": …}. */
static uint32_t calls_write_any(struct calls *calls, uint32_t then)
{
    for (uint32_t i = 0; i < calls->n_tools; i++)
        calls->entries[i] = program_call(calls->program, calls->tools[i].call, then);
    return program_split(calls->program, calls->entries, calls->n_tools);
}

static uint32_t calls_write_blank(struct grammar *program, uint32_t then)
{
    const uint32_t blank = program_node(program, NODE_BYTES);
    const struct grammar_edge edges[] = {{' ', ' ', then}, {'\n', '\n', then}};
    program_set_edges(program, blank, edges, 2);
    return program_either(program, blank, then);
}

static uint32_t calls_write_list(struct calls *calls, uint32_t then)
{
    struct grammar *program = calls->program;
    const uint32_t close = calls_write_blank(program, program_byte(program, ']', then));
    const uint32_t comma = program_node(program, NODE_BYTES);
    const uint32_t more = calls->many ? program_either(program, comma, close) : close;
    const uint32_t any = calls_write_any(calls, more);
    const struct grammar_edge edge = {',', ',', calls_write_blank(program, any)};
    program_set_edges(program, comma, &edge, 1);
    return program_byte(program, '[', calls_write_blank(program, any));
}

/* 1 to n_max digits, or letters and digits. */
static uint32_t calls_write_word(struct grammar *program, bool is_digits, uint32_t n_max,
                                 uint32_t then)
{
    uint32_t next = then;
    for (uint32_t i = 0; i < n_max; i++) {
        const uint32_t node = program_node(program, NODE_BYTES);
        const struct grammar_edge edges[] = {
            {'0', '9', next}, {'A', 'Z', next}, {'a', 'z', next}, {'_', '_', next}};
        program_set_edges(program, node, edges, is_digits ? 1 : 4);
        next = i + 1 < n_max ? program_either(program, node, then) : node;
    }
    return next;
}

static uint32_t calls_write_item(struct calls *calls, const struct calls_item *item,
                                 const struct calls_tool *tool, uint32_t then)
{
    struct grammar *program = calls->program;
    switch (item->code) {
    case '(':
        return watch_mark_text(program, item->text, then);
    case 's':
        return calls_write_blank(program, then);
    case 'c':
        return calls_write_any(calls, then);
    case 'l':
        return calls_write_list(calls, then);
    case 'n':
        return program_text(program, tool->name, then);
    case 'a':
        return program_call(program, tool->arguments, then);
    case 'd':
        return calls_write_word(program, true, CALLS_DIGITS, then);
    case 'w':
        return calls_write_word(program, false, CALLS_WORD, then);
    case '.':
        return program_either(program, calls->end, then);
    default:
        return program_text(program, item->text, then);
    }
}

/* Whether the tools have the rules that the form asks for. */
static bool calls_form_fits(const struct calls *calls, const struct calls_item *items, uint32_t n)
{
    bool fits = true;
    for (uint32_t i = 0; i < n; i++) {
        const bool any = items[i].code == 'c' || items[i].code == 'l', own = items[i].code == 'a';
        for (uint32_t k = 0; k < calls->n_tools; k++)
            fits &= (!any || calls->tools[k].call) && (!own || calls->tools[k].arguments);
    }
    return fits;
}

/* The form, once for each tool where it names one, behind `entry`. */
static enum error_code calls_write_form(struct calls *calls, const char *form, uint32_t then,
                                        uint32_t *entry)
{
    struct calls_item items[CALLS_FORM_ITEMS];
    uint32_t n = 0;
    bool has_name = false;
    while (form && *form && n < CALLS_FORM_ITEMS) {
        form = calls_read_item(form, &items[n]);
        has_name |= items[n].code == 'n' || items[n].code == 'a';
        n++;
    }
    if (!form || *form || !calls_form_fits(calls, items, n))
        return calls_invalid(calls, "forms: one is wrong");
    for (uint32_t k = 0; k < (has_name ? calls->n_tools : 1); k++) {
        uint32_t at = then;
        for (uint32_t i = n; i; i--)
            at = calls_write_item(calls, &items[i - 1], &calls->tools[k], at);
        *entry = *entry ? program_either(calls->program, *entry, at) : at;
    }
    return ERROR_NONE;
}

/* ---- the text around calls ---- */

static bool calls_take_mark(struct watch *watch, yyjson_val *text)
{
    const size_t size = yyjson_get_len(text);
    if (!yyjson_is_str(text) || !size || size > LIMIT_WATCH_MARK_BYTES ||
        strlen(yyjson_get_str(text)) != size || watch->n_marks == LIMIT_WATCH_MARKS)
        return false;
    watch->marks[watch->n_marks++].text = yyjson_get_str(text);
    return true;
}

static bool calls_take_marks(struct watch *watch, yyjson_val *list)
{
    yyjson_val *mark;
    size_t index, max;
    bool ok = true;
    yyjson_arr_foreach(list, index, max, mark) ok &= calls_take_mark(watch, mark);
    return ok;
}

static bool calls_take_tokens(struct watch *watch, yyjson_val *list)
{
    yyjson_val *token;
    size_t index, max;
    yyjson_arr_foreach(list, index, max, token)
    {
        const size_t size = yyjson_get_len(token);
        if (!yyjson_is_str(token) || !size || size > LIMIT_WATCH_MARK_BYTES ||
            strlen(yyjson_get_str(token)) != size || watch->n_tokens == LIMIT_WATCH_TOKENS)
            return false;
        watch->tokens[watch->n_tokens++] = yyjson_get_str(token);
    }
    return true;
}

/* Where calls begin: in the text, or in headers. */
static struct watch *calls_place(struct calls *calls)
{
    return calls->header.n_marks ? &calls->header : &calls->text;
}

static enum error_code calls_read_marks(struct calls *calls, yyjson_val **think)
{
    yyjson_val *headers = yyjson_obj_get(calls->source, "headers");
    *think = yyjson_obj_get(calls->source, "think");
    yyjson_val *tokens = yyjson_obj_get(calls->source, "tokens");
    bool ok = calls_take_tokens(&calls->text, tokens) &&
              calls_take_tokens(&calls->thought, tokens) &&
              calls_take_tokens(&calls->header, tokens);
    if (headers) { /* the mark that ends a header is its first */
        ok = ok && calls_take_mark(&calls->header, yyjson_arr_get_last(headers)) &&
             calls_take_marks(&calls->text, headers);
        calls->text.n_marks -= ok;
    }
    ok = ok && (!headers || calls->text.n_marks) &&
         calls_take_marks(calls_place(calls), yyjson_obj_get(calls->source, "begin"));
    if (*think)
        ok = ok && yyjson_arr_size(*think) == 2 && !headers &&
             calls_take_mark(&calls->thought, yyjson_arr_get(*think, 1)) &&
             yyjson_get_len(yyjson_arr_get_first(*think)) &&
             yyjson_get_len(yyjson_arr_get_first(*think)) <= LIMIT_WATCH_MARK_BYTES;
    if (*think && yyjson_get_bool(yyjson_obj_get(calls->source, "ends_thought")))
        ok = ok && calls_take_marks(&calls->thought, yyjson_obj_get(calls->source, "begin"));
    return ok && calls_place(calls)->n_marks > (headers ? 1 : 0)
               ? ERROR_NONE
               : calls_invalid(calls, "marks: they are wrong");
}

static void calls_link(struct calls *calls, uint32_t entry)
{
    struct watch *place = calls_place(calls);
    const bool has_headers = place == &calls->header;
    for (uint32_t i = 0; i < place->n_marks; i++)
        place->marks[i].target = has_headers && i == 0 ? watch_root(&calls->text) : entry;
    for (uint32_t i = 0; has_headers && i < calls->text.n_marks; i++)
        calls->text.marks[i].target = watch_root(&calls->header);
    for (uint32_t i = 0; i < calls->thought.n_marks; i++)
        calls->thought.marks[i].target = i ? entry : watch_root(&calls->text);
    watch_fill(&calls->text);
    watch_fill(&calls->thought);
    if (has_headers)
        watch_fill(&calls->header);
}

static enum error_code calls_write(struct calls *calls)
{
    struct grammar *program = calls->program;
    yyjson_val *think, *form;
    size_t index, max;
    uint32_t entry = 0;
    enum error_code code = calls_read_marks(calls, &think);
    if (code)
        return code;
    const uint32_t rule = program_rule(program);
    calls->end = program_return(program);
    watch_init(&calls->text, calls->end);
    watch_init(&calls->thought, calls->end);
    watch_init(&calls->header, calls->end);
    const uint32_t then = calls->many ? watch_root(calls_place(calls)) : calls->end;
    yyjson_arr_foreach(yyjson_obj_get(calls->source, "forms"), index, max, form)
    {
        code = code ? code : calls_write_form(calls, yyjson_get_str(form), then, &entry);
    }
    if (code || !entry)
        return code ? code : calls_invalid(calls, "forms: there are none");
    calls_link(calls, entry);
    const uint32_t thought = watch_root(&calls->thought);
    const char *begin = yyjson_get_str(yyjson_arr_get_first(think));
    program->root = rule;
    program_set_rule(program, rule,
                     !think ? watch_root(calls_place(calls))
                     : yyjson_get_bool(yyjson_obj_get(calls->source, "thinks"))
                         ? thought
                         : watch_opening(&calls->text, begin, thought, calls->end));
    return ERROR_NONE;
}

enum error_code calls_compile(const struct grammar_source *source, struct grammar *program,
                              struct error *err)
{
    yyjson_doc *doc = yyjson_read_opts((char *)source->text, source->size, 0, &json_memory, NULL);
    struct calls *calls = mem_new(sizeof *calls);
    enum error_code code = ERROR_NONE;
    if (!calls) {
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the tools");
    } else {
        calls->program = calls->text.program = calls->thought.program = calls->header.program =
            program;
        calls->err = err;
        calls->source = yyjson_doc_get_root(doc);
        calls->many = yyjson_get_bool(yyjson_obj_get(calls->source, "many"));
        code = calls_read_tools(calls);
        if (!code)
            code = calls_write(calls);
        mem_free(calls->tools);
        mem_free(calls->entries);
    }
    mem_free(calls);
    yyjson_doc_free(doc);
    return code;
}
