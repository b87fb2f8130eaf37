#include "picture/decode_impl.h"

#include "base/limits.h"
#include "base/mem.h"
#include "picture/exif.h"

#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h, which does not include it */
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

enum { CMYK_BYTES = 4, MARKER_EXIF = JPEG_APP0 + 1 };

struct jpeg_work {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const struct decoding *from;
    struct picture *out;
    uint8_t *line; /* of a picture in CMYK */
    struct error *err;
    enum error_code code;
};

static void jpeg_on_error(j_common_ptr jpeg)
{
    struct jpeg_work *work = jpeg->client_data;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    work->code = error_set(
        work->err, jpeg->err->msg_code == JERR_OUT_OF_MEMORY ? ERROR_NO_MEMORY : ERROR_INVALID,
        "%s", text);
    longjmp(work->failed, 1);
}

/* Of what the library would read over, a file that ends early is refused: what lacks would be grey,
 * and a model would describe that. */
static void jpeg_on_message(j_common_ptr jpeg, int level)
{
    const int code = jpeg->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER))
        jpeg_on_error(jpeg);
}

/* A small file may have thousands of scans that each go over all pixels. */
static void jpeg_on_progress(j_common_ptr jpeg)
{
    struct jpeg_work *work = jpeg->client_data;
    if (work->jpeg.input_scan_number <= LIMIT_PICTURE_SCANS)
        return;
    work->code = error_set(work->err, ERROR_INVALID, "it has more than %d scans; save it anew",
                           LIMIT_PICTURE_SCANS);
    longjmp(work->failed, 1);
}

static uint32_t jpeg_orientation(const struct jpeg_work *work)
{
    for (jpeg_saved_marker_ptr marker = work->jpeg.marker_list; marker; marker = marker->next) {
        if (marker->marker == MARKER_EXIF && marker->data_length > 6 &&
            memcmp(marker->data, "Exif\0\0", 6) == 0)
            return exif_orientation(marker->data, marker->data_length);
    }
    return 1;
}

/* Ink on white; Adobe's programs, which make nearly all of these, store it inverted. */
static void jpeg_line_of_inks(const struct jpeg_work *work, uint8_t *rgb)
{
    const uint8_t flip = work->jpeg.saw_Adobe_marker ? 0 : UINT8_MAX;
    for (uint32_t x = 0; x < work->out->width; x++) {
        const uint8_t *cmyk = work->line + (size_t)x * CMYK_BYTES;
        const unsigned black = cmyk[3] ^ flip;
        for (uint32_t i = 0; i < 3; i++)
            rgb[(size_t)x * 3 + i] = (uint8_t)((cmyk[i] ^ flip) * black / UINT8_MAX);
    }
}

static void jpeg_read_lines(struct jpeg_work *work)
{
    struct jpeg_decompress_struct *jpeg = &work->jpeg;
    const bool is_inks = jpeg->out_color_space == JCS_CMYK;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *rgb = work->out->rgb + (size_t)jpeg->output_scanline * work->out->width * 3;
        JSAMPROW line = is_inks ? work->line : rgb;
        if (jpeg_read_scanlines(jpeg, &line, 1) == 1 && is_inks)
            jpeg_line_of_inks(work, rgb);
    }
}

/* May leave by longjmp(). */
static void jpeg_work_run(struct jpeg_work *work, uint32_t *orientation)
{
    struct jpeg_decompress_struct *jpeg = &work->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->client_data = work;
    jpeg->progress = &work->progress;
    jpeg_mem_src(jpeg, work->from->bytes, work->from->size);
    jpeg_save_markers(jpeg, MARKER_EXIF, 0xffff);
    jpeg_read_header(jpeg, TRUE);
    work->code =
        decode_begin(work->from, jpeg->image_width, jpeg->image_height, work->out, work->err);
    if (work->code)
        return;
    *orientation = jpeg_orientation(work);
    const bool is_inks = jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = is_inks ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(jpeg);
    if (is_inks)
        work->line = mem_new_array(jpeg->output_width, CMYK_BYTES);
    if (is_inks && !work->line) {
        work->code = error_set(work->err, ERROR_NO_MEMORY, "not enough memory for a line of it");
        return;
    }
    jpeg_read_lines(work);
    jpeg_finish_decompress(jpeg);
}

enum error_code decode_jpeg(const struct decoding *from, struct picture *out, uint32_t *orientation,
                            struct error *err)
{
    struct jpeg_work *work = mem_new(sizeof *work);
    if (!work)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to decode it");
    work->from = from;
    work->out = out;
    work->err = err;
    work->jpeg.err = jpeg_std_error(&work->errors);
    work->jpeg.client_data = work;
    work->errors.error_exit = jpeg_on_error;
    work->errors.emit_message = jpeg_on_message;
    work->progress.progress_monitor = jpeg_on_progress;
    if (!setjmp(work->failed))
        jpeg_work_run(work, orientation);
    jpeg_destroy_decompress(&work->jpeg);
    const enum error_code code = work->code;
    mem_free(work->line);
    mem_free(work);
    return code;
}
