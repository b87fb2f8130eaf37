/* The pure parts of the room hub: names, types by name, models among files, heads of answers, the
 * state of a pull and what it asks for next; and what a pull leaves on disk. */
#include "base/large_pages.h"
#include "base/mem.h"
#include "hub/http.h"
#include "hub/pull_disk.h"
#include "hub/pull_schedule.h"
#include "hub/quant.h"
#include "hub/shelf.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct error err;

static struct hub_name name_of(const char *word)
{
    struct hub_name name;
    if (hub_name_parse(word, &name, &err))
        fail_msg("%s: %s", word, err.text);
    return name;
}

static void names_are_taken_apart(void **state)
{
    struct hub_name name = name_of("hf:org/repo:Q4_K_M");
    assert_string_equal(name.owner, "org");
    assert_string_equal(name.model, "repo");
    assert_string_equal(name.tag, "Q4_K_M");
    assert_string_equal(name_of("hf:org/repo/a/b.gguf").file, "a/b.gguf");
    name = name_of("ollama:tiny");
    assert_string_equal(name.owner, "library");
    assert_string_equal(name.tag, "latest");
    name = name_of("ollama:registry.example.org:5000/ann/tiny:1b");
    assert_string_equal(name.host, "registry.example.org:5000");
    assert_string_equal(name.owner, "ann");
    assert_string_equal(name.model, "tiny");
    assert_string_equal(name.tag, "1b");
    name = name_of("https://example.org:8443/a/b.gguf?download=true");
    assert_string_equal(name.host, "example.org:8443");
    assert_string_equal(name.file, "b.gguf");
    assert_int_equal(name_of("models/hf.gguf").kind, HUB_PATH);
}

static void names_that_lead_elsewhere_are_refused(void **state)
{
    static const char *const words[] = {
        "hf:",
        "hf:org",
        "hf:org/",
        "hf:/repo",
        "hf:org/..",
        "hf:org/r/../x",
        "hf:org/repo:",
        "hf:o/r:a/b",
        "hf:.org/repo",
        "hf:o rg/repo",
        "ollama:",
        "ollama:a:",
        "ollama:../a",
        "ollama:h/../u/m",
        "ollama:a b",
        "https://",
        "https://host",
        "https://h/",
        "https://u:p@h/a.gguf",
        "http://h/..",
        "https://h/a b.gguf",
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct hub_name name;
        if (hub_name_parse(words[i], &name, &err) != ERROR_INVALID)
            fail_msg("%s was taken", words[i]);
    }
}

static void types_are_read_from_names(void **state)
{
    static const char *const known[][2] = {
        {"Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"},
        {"model.q8_0.gguf", "Q8_0"},
        {"Qwen3-0.6B-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"},
        {"Q4_K_M/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf", "Q4_K_M"},
        {"gemma-3-4b-it-BF16.gguf", "BF16"},
        {"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
        {"Qwen3-0.6B.gguf", ""},
        {"F1-racing.gguf", "F1"},
    };
    char quant[QUANT_TEXT];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        quant_of_name(known[i][0], quant);
        assert_string_equal(quant, known[i][1]);
    }
    assert_true(quant_matches("UD-Q4_K_XL", "q4_k_xl"));
    assert_false(quant_matches("Q4_K_M", "Q4_K_S"));
}

static void models_need_all_parts(void **state)
{
    static struct hub_model_entry models[QUANT_MODELS];
    struct hub_file list[] = {
        {.path = "B-Q8_0-00002-of-00002.gguf", .size = 5},
        {.path = "mmproj-F16.gguf", .size = 1},
        {.path = "A-Q4_0.gguf", .size = 3},
        {.path = "B-Q8_0-00001-of-00002.gguf", .size = 7},
        {.path = "C-F16-00001-of-00002.gguf", .size = 9},
    };
    const struct hub_files files = {list, 5};
    assert_int_equal(quant_models(&files, models), 2);
    assert_string_equal(models[0].quant, "Q4_0");
    assert_int_equal(models[1].n_files, 2);
    assert_int_equal(models[1].files[0], 3);
    assert_int_equal(models[1].files[1], 0);
    assert_int_equal(models[1].bytes, 12);
}

static void take_head(struct http_head *head, const char *text)
{
    for (const char *end; *text; text = end + 1) {
        end = strchr(text, '\n');
        http_head_line(head, text, (size_t)(end - text) + 1);
    }
}

static void heads_are_of_the_last_answer(void **state)
{
    struct http_head head = {0};
    take_head(&head, "HTTP/1.1 302 Found\r\nX-Linked-Etag: \"abc\"\r\nETag: \"redirect\"\r\n"
                     "Retry-After: 9\r\n\r\nHTTP/1.1 206 Partial\r\n"
                     "content-range: bytes 5-9/100\r\n\r\n");
    assert_int_equal(head.status, 206);
    assert_true(head.has_range && head.from == 5 && head.to == 10 && head.total == 100);
    assert_string_equal(head.linked_etag, "\"abc\"");
    assert_string_equal(head.etag, "");
    assert_int_equal(head.retry_after_s, 0);
    static const char *const bad[] = {"bytes 9-5/100", "bytes 5-100/100", "bytes */100",
                                      "5-9/100",       "bytes 5-9/*",     "bytes 5-9/100x",
                                      "bytes -1-9/100"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128];
        snprintf(text, sizeof text, "HTTP/1.1 206 x\nContent-Range: %s\n", bad[i]);
        take_head(&head, text);
        assert_false(head.has_range);
    }
    take_head(&head, "HTTP/1.1 429 x\nRetry-After: 99999999\nETag: W/\"weak\"\n"
                     "Link: <https://h/a>; rel=\"prev\", <https://h/b>; rel=\"next\"\n");
    assert_int_equal(head.retry_after_s, HTTP_RETRY_AFTER_S);
    assert_string_equal(head.etag, "");
    assert_string_equal(head.next, "https://h/b");
}

static void http_is_for_this_machine(void **state)
{
    assert_int_equal(http_url_check("https://example.org/a", false, &err), ERROR_NONE);
    assert_int_equal(http_url_check("http://127.0.0.1:80/a", false, &err), ERROR_NONE);
    assert_int_equal(http_url_check("http://[::1]/a", false, &err), ERROR_NONE);
    assert_int_equal(http_url_check("http://example.org/a", true, &err), ERROR_NONE);
    static const char *const bad[] = {"http://example.org/a",    "http://127.example.org/a",
                                      "https://u:p@example.org", "ftp://example.org/a",
                                      "file:///etc/passwd",      "http://localhost.example.org/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (!http_url_check(bad[i], false, &err))
            fail_msg("%s was taken", bad[i]);
    }
    assert_false(http_url_is_private("http://example.org/a"));
}

static void states_are_written_and_read(void **state)
{
    struct pull_state *pull = mem_new(sizeof *pull), *again = mem_new(sizeof *again);
    for (unsigned seed = 1; seed <= 50; seed++) {
        struct buffer text = {0};
        struct pulled_state seen;
        srand(seed);
        assert_false(pull_state_init(pull, 1 + (uint64_t)rand() * 7, &err));
        for (uint32_t i = 0; i < pull->n_pieces; i++) {
            const uint64_t whole = pull_piece_size(pull, i);
            pull->have[i] = rand() % 3 ? (rand() % 2 ? whole : (uint64_t)rand() % whole) : 0;
            pull->summed[i] = rand() % 4 ? pull->have[i] : 0;
            pull->sums[i] = pull->summed[i] ? (uint64_t)rand() << 33 : 0;
        }
        pull_state_write(pull, &text);
        assert_false(pull_state_read(text.data, text.size, again, &err));
        assert_memory_equal(pull, again, sizeof *pull);
        assert_false(pulled_parse(text.data, text.size, &seen, &err));
        assert_int_equal(seen.size, pull->size);
        assert_int_equal(seen.done, pull_state_done(pull));
        assert_true(pulled_parse(text.data, text.size - 1, &seen, &err) == ERROR_INVALID);
        buffer_deinit(&text);
    }
    assert_int_equal(pull_state_init(pull, 0, &err), ERROR_INVALID);
    assert_int_equal(pull_state_init(pull, PULL_FILE_BYTES + 1, &err), ERROR_INVALID);
    mem_free(pull);
    mem_free(again);
}

/* Whatever is here, spans ask for each missing byte once. */
static void spans_cover_what_lacks(void **state)
{
    static bool asked[PULL_PIECES];
    struct pull_state *pull = mem_new(sizeof *pull);
    for (unsigned seed = 1; seed <= 50; seed++) {
        struct pull_span span;
        uint64_t sum = 0;
        srand(seed);
        assert_false(pull_state_init(pull, 1 + (uint64_t)rand(), &err));
        memset(asked, 0, sizeof asked);
        for (uint32_t i = 0; i < pull->n_pieces; i++)
            pull->have[i] = rand() % 2 ? (uint64_t)rand() % (pull_piece_size(pull, i) + 1) : 0;
        while (pull_span_next(pull, asked, 1 + seed % 8, &span)) {
            assert_int_equal(span.from, span.first * pull->piece + pull->have[span.first]);
            for (uint32_t i = span.first; i < span.end; i++) {
                assert_false(asked[i]);
                assert_true(i == span.first || !pull->have[i]);
                asked[i] = true;
            }
            sum += span.to - span.from;
            assert_true(span.to - span.from <= PULL_SPAN_BYTES + pull->piece);
        }
        assert_int_equal(sum, pull->size - pull_state_done(pull));
    }
    mem_free(pull);
}

/* ---- on disk --------------------------------------------------------------------------------- */

static char folder[] = "/tmp/medley-hub-XXXXXX";
static char path[64];
enum { DISK_SIZE = 3 * PULL_PIECE_BYTES + 100 };

static void begin(struct pull_disk *disk, struct pull_state *pull, bool *resumed)
{
    assert_false(pull_disk_open(disk, path, &err));
    assert_false(pull_state_init(pull, DISK_SIZE, &err));
    memset(pull->sha256, 'a', PULL_SHA256 - 1);
    if (pull_disk_begin(disk, pull, resumed, &err))
        fail_msg("%s", err.text);
}

static void disk_keeps_what_came(void **state)
{
    static uint8_t bytes[PULL_PIECE_BYTES];
    struct pull_state *pull = mem_new(sizeof *pull);
    struct pull_disk disk, other;
    bool resumed;
    uint32_t n;
    memset(bytes, 7, sizeof bytes);
    begin(&disk, pull, &resumed);
    assert_false(resumed);
    assert_int_equal(pull_disk_open(&other, path, &err), ERROR_BUSY);
    assert_false(pull_disk_write(&disk, pull, 0, bytes, sizeof bytes, &err));
    assert_false(pull_disk_sync(&disk, pull, &err));
    assert_false(pull_disk_write(&disk, pull, 1, bytes, 500, &err)); /* not synced */
    assert_false(pull_disk_write(&disk, pull, 2, bytes, 300, &err));
    pull_disk_close(&disk); /* as kill -9 would */

    begin(&disk, pull, &resumed);
    assert_true(resumed);
    assert_int_equal(pull->have[0], PULL_PIECE_BYTES);
    assert_int_equal(pull->have[1], 500);
    assert_int_equal(pull->have[2], 300);
    assert_int_equal(pull_disk_received(&disk), PULL_PIECE_BYTES + 800);
    pull_disk_close(&disk);

    char live[80];
    snprintf(live, sizeof live, "%s" PULLED_LIVE, path);
    assert_int_equal(truncate(live, 0), 0); /* another boot: it does not count */
    begin(&disk, pull, &resumed);
    assert_true(resumed && pull->have[0] == PULL_PIECE_BYTES && pull->have[1] == 500);
    assert_int_equal(pwrite(disk.part, "x", 1, 100), 1); /* the disk changes a byte */
    assert_false(pull_disk_find_damage(&disk, pull, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(pull->have[0], 0);
    assert_int_equal(pull->have[1], 500);
    pull_disk_discard(&disk);
    pull_disk_close(&disk);
    mem_free(pull);
}

/* In the build folder, for /tmp may be memory; where the kernel has none there, it is skipped. */
static void disk_holds_it_in_large_pages(void **state)
{
    enum { SIZE = 6 << 20, WRITE_BYTES = 12000 };
    static const char file[] = "large-pages-of-a-pull.gguf";
    static uint8_t bytes[WRITE_BYTES];
    if (!large_pages_possible("."))
        skip();
    struct pull_state *pull = mem_new(sizeof *pull);
    struct pull_disk disk;
    bool resumed;
    assert_false(pull_disk_open(&disk, file, &err));
    assert_false(pull_state_init(pull, SIZE, &err));
    assert_false(pull_disk_begin(&disk, pull, &resumed, &err));
    for (uint32_t i = 0; i < pull->n_pieces; i++) {
        for (uint64_t left; (left = pull_piece_size(pull, i) - pull->have[i]) > 0;) {
            const size_t n = left < WRITE_BYTES ? (size_t)left : WRITE_BYTES;
            assert_false(pull_disk_write(&disk, pull, i, bytes, n, &err));
        }
    }
    assert_false(pull_disk_finish(&disk, &err));
    pull_disk_close(&disk);
    mem_free(pull);
    const int fd = open(file, O_RDONLY | O_CLOEXEC);
    const struct large_pages_seen seen = large_pages_look(fd);
    close(fd);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(seen.n_places, 3);
    assert_int_equal(seen.n_large, 3);
}

/* Another version of the file, or a part that somebody removed: nothing of it counts. */
static void disk_drops_what_is_of_another(void **state)
{
    struct pull_state *pull = mem_new(sizeof *pull);
    struct pull_disk disk;
    bool resumed;
    char part[80];
    snprintf(part, sizeof part, "%s" PULLED_PART, path);
    begin(&disk, pull, &resumed);
    assert_false(pull_disk_write(&disk, pull, 0, "1234", 4, &err));
    assert_false(pull_disk_sync(&disk, pull, &err));
    pull_disk_close(&disk);
    assert_int_equal(unlink(part), 0);
    begin(&disk, pull, &resumed);
    assert_false(resumed);
    assert_int_equal(pull_state_done(pull), 0);
    assert_false(pull_disk_write(&disk, pull, 0, "1234", 4, &err));
    assert_false(pull_disk_sync(&disk, pull, &err));
    pull_disk_close(&disk);
    assert_false(pull_disk_open(&disk, path, &err));
    assert_false(pull_state_init(pull, DISK_SIZE, &err));
    memset(pull->sha256, 'b', PULL_SHA256 - 1);
    assert_false(pull_disk_begin(&disk, pull, &resumed, &err));
    assert_false(resumed);
    assert_int_equal(pull_state_done(pull), 0);
    pull_disk_discard(&disk);
    pull_disk_close(&disk);
    mem_free(pull);
}

/* Whichever allocation fails, there is an error and a pull that goes on later. */
static void disk_survives_lack_of_memory(void **state)
{
    struct pull_state *pull = mem_new(sizeof *pull);
    struct pull_disk disk;
    bool resumed, failed = true;
    for (unsigned nth = 1; failed && nth < 1000; nth++) {
        assert_false(pull_disk_open(&disk, path, &err));
        assert_false(pull_state_init(pull, DISK_SIZE, &err));
        memset(pull->sha256, 'c', PULL_SHA256 - 1);
        mem_fail_nth(nth);
        failed = pull_disk_begin(&disk, pull, &resumed, &err);
        mem_fail_nth(0);
        if (failed)
            assert_int_equal(err.code, ERROR_NO_MEMORY);
        pull_disk_close(&disk);
    }
    assert_false(failed);
    assert_false(pull_disk_open(&disk, path, &err));
    pull_disk_discard(&disk);
    pull_disk_close(&disk);
    mem_free(pull);
}

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    return rmdir(folder); /* empty: nothing was left behind */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_taken_apart),
        cmocka_unit_test(names_that_lead_elsewhere_are_refused),
        cmocka_unit_test(types_are_read_from_names),
        cmocka_unit_test(models_need_all_parts),
        cmocka_unit_test(heads_are_of_the_last_answer),
        cmocka_unit_test(http_is_for_this_machine),
        cmocka_unit_test(states_are_written_and_read),
        cmocka_unit_test(spans_cover_what_lacks),
        cmocka_unit_test(disk_keeps_what_came),
        cmocka_unit_test(disk_holds_it_in_large_pages),
        cmocka_unit_test(disk_drops_what_is_of_another),
        cmocka_unit_test(disk_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
