// Runs a model that `opu-fuse compile -o model_ctx.onnx` wrote, without Python:
//   c++ -std=c++17 -Isrc examples/classify.cpp -o classify -l:libonnxruntime.so.1
//   ./classify libonnxruntime_ep_opu.so model_ctx.onnx input output 224 < input.bin > output.bin
// input.bin: float32 of shape 1 x 3 x rows x columns.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ort_abi.h"

extern "C" const OrtApiBase *OrtGetApiBase();
static const OrtApi *api = OrtGetApiBase()->GetApi(ORT_API_VERSION);

static void check(OrtStatus *status) {
  if (!status) return;
  std::fprintf(stderr, "%s\n", ort_GetErrorMessage(api)(status));
  std::exit(1);
}

int main(int argc, char **argv) {
  if (argc != 6) return std::fprintf(stderr, "classify LIBRARY MODEL INPUT OUTPUT SIZE\n"), 2;
  const std::string provider = "OpuFuseExecutionProvider";
  OrtEnv *env;
  check(ort_CreateEnv(api)(2, "classify", &env));
  check(ort_RegisterExecutionProviderLibrary(api)(env, provider.c_str(), argv[1]));
  const OrtEpDevice *const *devices;
  size_t count;
  check(ort_GetEpDevices(api)(env, &devices, &count));
  OrtSessionOptions *options;
  check(ort_CreateSessionOptions(api)(&options));
  for (size_t n = 0; n < count; n++)
    if (provider == ort_EpDevice_EpName(api)(devices[n]))
      check(ort_SessionOptionsAppendExecutionProvider_V2(api)(options, env, &devices[n], 1, nullptr,
                                                              nullptr, 0));
  OrtSession *session;
  check(ort_CreateSession(api)(env, argv[2], options, &session));

  const int64_t size = std::atoi(argv[5]), shape[] = {1, 3, size, size};
  std::vector<float> image(static_cast<size_t>(3 * size * size));
  if (std::fread(image.data(), 4, image.size(), stdin) != image.size()) return 2;
  OrtMemoryInfo *memory;
  OrtValue *input, *output = nullptr;
  check(ort_CreateCpuMemoryInfo(api)(0, 0, &memory));
  check(ort_CreateTensorWithDataAsOrtValue(api)(memory, image.data(), 4 * image.size(), shape, 4, 1,
                                                &input));
  check(ort_Run(api)(session, nullptr, &argv[3], &input, 1, &argv[4], 1, &output));

  OrtTensorTypeAndShapeInfo *info;
  float *values;
  check(ort_GetTensorTypeAndShape(api)(output, &info));
  check(ort_GetTensorShapeElementCount(api)(info, &count));
  check(ort_GetTensorMutableData(api)(output, reinterpret_cast<void **>(&values)));
  return std::fwrite(values, 4, count, stdout) != count;
}
