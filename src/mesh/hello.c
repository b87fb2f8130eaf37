#include "mesh/hello.h"

#include "base/mem.h"
#include "link.pb-c.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void *hello_allocate(void *self, size_t size)
{
    return mem_new(size);
}

static void hello_release(void *self, void *memory)
{
    mem_free(memory);
}

static ProtobufCAllocator allocator = {.alloc = hello_allocate, .free = hello_release};

/* Foreign words become safe ones. */
static void copy_words(const char *words, char *into, size_t size)
{
    size_t i = 0;
    for (; words[i] && i + 1 < size; i++)
        into[i] = words[i] >= ' ' && words[i] <= '~' ? words[i] : '?';
    into[i] = '\0';
}

size_t hello_write(const struct hello *hello, uint8_t bytes[static LIMIT_HELLO_BYTES])
{
    assert(hello->n_greeting <= LIMIT_GREETING_BYTES);
    Medley__Link__Hello message = MEDLEY__LINK__HELLO__INIT;
    message.major = hello->version.major;
    message.minor = hello->version.minor;
    message.channel = hello->channel;
    message.n_channels = hello->n_channels;
    message.session = hello->session;
    message.boot = hello->boot;
    message.software = (char *)hello->software;
    message.greeting =
        (ProtobufCBinaryData){.len = hello->n_greeting, .data = (uint8_t *)hello->greeting};
    assert(medley__link__hello__get_packed_size(&message) <= LIMIT_HELLO_BYTES);
    return medley__link__hello__pack(&message, bytes);
}

/* `message` is well-formed; says whether its values are. */
static enum error_code check_hello(const Medley__Link__Hello *message, struct error *err)
{
    if (message->major == 0)
        return error_set(err, ERROR_INVALID, "the hello has no version");
    if (message->n_channels < 2 || message->n_channels > LIMIT_LINK_CHANNELS)
        return error_set(err, ERROR_INVALID, "a link of %u channels; 2 to %d are possible",
                         message->n_channels, LIMIT_LINK_CHANNELS);
    if (message->channel >= message->n_channels)
        return error_set(err, ERROR_INVALID, "channel %u of a link of %u", message->channel,
                         message->n_channels);
    if (message->greeting.len > LIMIT_GREETING_BYTES)
        return error_set(err, ERROR_INVALID, "a greeting of %zu bytes; at most %d are possible",
                         message->greeting.len, LIMIT_GREETING_BYTES);
    return ERROR_NONE;
}

enum error_code hello_read(const uint8_t *bytes, size_t size, struct hello *hello,
                           struct error *err)
{
    *hello = (struct hello){0};
    if (size > LIMIT_HELLO_BYTES)
        return error_set(err, ERROR_INVALID, "a hello of %zu bytes; at most %d are possible", size,
                         LIMIT_HELLO_BYTES);
    Medley__Link__Hello *message = medley__link__hello__unpack(&allocator, size, bytes);
    if (!message)
        return error_set(err, ERROR_INVALID, "malformed hello");
    /* Of another major version only the version is looked at: the rest may mean something else. */
    hello->version = (struct link_version){message->major, message->minor};
    enum error_code code = message->major == LINK_MAJOR || message->major == 0
                               ? check_hello(message, err)
                               : ERROR_NONE;
    if (!code && message->major == LINK_MAJOR) {
        hello->channel = message->channel;
        hello->n_channels = message->n_channels;
        hello->session = message->session;
        hello->boot = message->boot;
        hello->n_greeting = (uint32_t)message->greeting.len;
        if (hello->n_greeting)
            memcpy(hello->greeting, message->greeting.data, hello->n_greeting);
    }
    copy_words(message->software, hello->software, sizeof hello->software);
    medley__link__hello__free_unpacked(message, &allocator);
    return code;
}

size_t refusal_write(const struct refusal *refusal, uint8_t bytes[static LIMIT_HELLO_BYTES])
{
    Medley__Link__Refusal message = MEDLEY__LINK__REFUSAL__INIT;
    message.reason = (Medley__Link__Refusal__Reason)refusal->reason;
    message.text = (char *)refusal->text;
    message.major = refusal->version.major;
    message.minor = refusal->version.minor;
    assert(medley__link__refusal__get_packed_size(&message) <= LIMIT_HELLO_BYTES);
    return medley__link__refusal__pack(&message, bytes);
}

enum error_code refusal_read(const uint8_t *bytes, size_t size, struct refusal *refusal,
                             struct error *err)
{
    *refusal = (struct refusal){0};
    Medley__Link__Refusal *message =
        size <= LIMIT_HELLO_BYTES ? medley__link__refusal__unpack(&allocator, size, bytes) : NULL;
    if (!message)
        return error_set(err, ERROR_INVALID, "malformed refusal");
    const uint32_t reason = (uint32_t)message->reason;
    refusal->reason = reason <= REFUSAL_STOPPING ? (enum refusal_reason)reason : REFUSAL_UNKNOWN;
    refusal->version = (struct link_version){message->major, message->minor};
    copy_words(message->text, refusal->text, sizeof refusal->text);
    medley__link__refusal__free_unpacked(message, &allocator);
    return ERROR_NONE;
}

enum error_code version_agree(struct link_version ours, struct link_version theirs,
                              struct link_version *agreed, struct error *err)
{
    *agreed =
        (struct link_version){ours.major, ours.minor < theirs.minor ? ours.minor : theirs.minor};
    const bool same = ours.major == theirs.major;
    const bool theirs_is_older = same ? theirs.minor < ours.minor : theirs.major < ours.major;
    const uint32_t apart = theirs_is_older ? ours.minor - theirs.minor : theirs.minor - ours.minor;
    if (same && apart <= LINK_MINORS_APART)
        return ERROR_NONE;
    return error_set(
        err, ERROR_UNSUPPORTED,
        "it speaks version %u.%u of the protocol, this node %u.%u: update the medley %s",
        theirs.major, theirs.minor, ours.major, ours.minor, theirs_is_older ? "there" : "here");
}
