#include "picture/decode_impl.h"
#include "picture/exif.h"

#include "base/mem.h"

#include <webp/decode.h>
#include <webp/demux.h>

enum { RGBA_BYTES = 4 };

/* Over white. */
static void webp_lay_frame(const uint8_t *rgba, const WebPIterator *frame, struct picture *out)
{
    for (int y = 0; y < frame->height; y++) {
        for (int x = 0; x < frame->width; x++) {
            const uint8_t *from =
                rgba + ((size_t)y * (size_t)frame->width + (size_t)x) * RGBA_BYTES;
            const size_t row = (size_t)(frame->y_offset + y) * out->width;
            uint8_t *to = out->rgb + (row + (size_t)(frame->x_offset + x)) * 3;
            const unsigned alpha = from[3], rest = UINT8_MAX - alpha;
            for (int i = 0; i < 3; i++)
                to[i] = (uint8_t)((from[i] * alpha + UINT8_MAX * rest + UINT8_MAX / 2) / UINT8_MAX);
        }
    }
}

static enum error_code webp_decode_frame(const WebPIterator *frame, struct picture *out,
                                         struct error *err)
{
    WebPBitstreamFeatures features;
    const size_t stride = (size_t)frame->width * RGBA_BYTES;
    const size_t size = stride * (size_t)frame->height;
    if (WebPGetFeatures(frame->fragment.bytes, frame->fragment.size, &features) != VP8_STATUS_OK ||
        features.width != frame->width || features.height != frame->height ||
        (uint64_t)frame->x_offset + (uint64_t)frame->width > out->width ||
        (uint64_t)frame->y_offset + (uint64_t)frame->height > out->height)
        return error_set(err, ERROR_INVALID, "its first frame is damaged");
    uint8_t *rgba = mem_new(size);
    if (!rgba)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for %d x %d pixels", frame->width,
                         frame->height);
    enum error_code code = ERROR_NONE;
    if (WebPDecodeRGBAInto(frame->fragment.bytes, frame->fragment.size, rgba, size, (int)stride))
        webp_lay_frame(rgba, frame, out);
    else
        code = error_set(err, ERROR_INVALID, "its pixels are damaged, or end early");
    mem_free(rgba);
    return code;
}

static void webp_find_exif(const WebPDemuxer *file, uint32_t *orientation)
{
    WebPChunkIterator chunk;
    if (WebPDemuxGetChunk(file, "EXIF", 1, &chunk)) {
        *orientation = exif_orientation(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
}

enum error_code decode_webp(const struct decoding *from, struct picture *out, uint32_t *orientation,
                            struct error *err)
{
    WebPIterator frame = {0};
    WebPDemuxer *file = WebPDemux(&(const WebPData){from->bytes, from->size});
    if (!file)
        return error_set(err, ERROR_INVALID, "it is damaged, or ends early");
    enum error_code code = decode_begin(from, WebPDemuxGetI(file, WEBP_FF_CANVAS_WIDTH),
                                        WebPDemuxGetI(file, WEBP_FF_CANVAS_HEIGHT), out, err);
    if (!code && !WebPDemuxGetFrame(file, 1, &frame))
        code = error_set(err, ERROR_INVALID, "it has no frame");
    else if (!code)
        code = webp_decode_frame(&frame, out, err);
    WebPDemuxReleaseIterator(&frame);
    webp_find_exif(file, orientation);
    WebPDemuxDelete(file);
    return code;
}
