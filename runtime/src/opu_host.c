/* placeholder */
#include "opu_bytes.h"
#include "opu_file.h"
const char *opu_host_check(struct opu_file *file) { file->image_bytes = file->work_bytes = 0; return file->host_bytes ? "x" : 0; }
void opu_host_run(const struct opu_session *session, uint32_t number, uint32_t image) { (void)session; (void)number; (void)image; }
uint32_t opu_host_port(const struct opu_file *file, uint32_t number, uint32_t which) { (void)file; (void)number; (void)which; return OPU_NONE; }
