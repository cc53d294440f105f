/* What this provider uses of ONNX Runtime's C interface. No registry carries ONNX Runtime's headers,
 * so the entries are declared here, by their places in its tables of functions; ONNX Runtime only
 * ever appends to these. CreateEpFactories asks for a table of at least ORT_API_VERSION.
 *
 * tests/onnxruntime_ep/ calls every entry through several versions of ONNX Runtime. */
#ifndef OPU_ORT_ABI_H
#define OPU_ORT_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ORT_API_VERSION 23u /* the first with compiling providers: ONNX Runtime 1.23 */
#define ORT_API_PROFILING 25u /* the first with profilers of providers */

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtGraph OrtGraph;
typedef struct OrtNode OrtNode;
typedef struct OrtLogger OrtLogger;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtEpGraphSupportInfo OrtEpGraphSupportInfo;
typedef struct OrtEp OrtEp;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtNodeComputeInfo OrtNodeComputeInfo;
typedef struct OrtNodeComputeContext OrtNodeComputeContext;
typedef struct OrtEpProfilerImpl OrtEpProfilerImpl;
typedef struct OrtProfilingEvent OrtProfilingEvent;
typedef struct OrtProfilingEventsContainer OrtProfilingEventsContainer;

/* A table of functions of any type. */
typedef void (*ort_entry)(void);
typedef struct OrtApi {
  ort_entry entry[400];
} OrtApi;
typedef struct OrtEpApi {
  ort_entry entry[80];
} OrtEpApi;

/* What the symbol OrtGetApiBase gives. GetApi: a null pointer where the version is not known. */
typedef struct OrtApiBase {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_INVALID_ARGUMENT = 2, ORT_EP_FAIL = 11 };
enum { ORT_LOGGING_INFO = 1, ORT_LOGGING_WARNING = 2 };
enum { ORT_DEVICE_CPU = 0 };
enum { ORT_PROFILING_KERNEL = 2 };
enum { ORT_ATTRIBUTE_INT = 1, ORT_ATTRIBUTE_STRING = 5 };

/* place, result, name, parameters */
#define ORT_ENTRIES(X)                                                                            \
  X(0, OrtStatus *, CreateStatus, (int code, const char *message))                                \
  X(2, const char *, GetErrorMessage, (const OrtStatus *status))                                  \
  X(3, OrtStatus *, CreateEnv, (int level, const char *id, OrtEnv **env))                         \
  X(7, OrtStatus *, CreateSession,                                                                \
    (const OrtEnv *env, const char *path, const OrtSessionOptions *options, OrtSession **session)) \
  X(9, OrtStatus *, Run,                                                                          \
    (OrtSession * session, const OrtRunOptions *options, const char *const *input_names,          \
     const OrtValue *const *inputs, size_t input_count, const char *const *output_names,          \
     size_t output_count, OrtValue **outputs))                                                    \
  X(10, OrtStatus *, CreateSessionOptions, (OrtSessionOptions * *options))                        \
  X(49, OrtStatus *, CreateTensorWithDataAsOrtValue,                                              \
    (const OrtMemoryInfo *info, void *data, size_t bytes, const int64_t *shape, size_t rank,      \
     int type, OrtValue **value))                                                                 \
  X(51, OrtStatus *, GetTensorMutableData, (OrtValue * value, void **data))                       \
  X(60, OrtStatus *, GetTensorElementType, (const OrtTensorTypeAndShapeInfo *info, int *type))    \
  X(64, OrtStatus *, GetTensorShapeElementCount,                                                  \
    (const OrtTensorTypeAndShapeInfo *info, size_t *elements))                                    \
  X(65, OrtStatus *, GetTensorTypeAndShape,                                                       \
    (const OrtValue *value, OrtTensorTypeAndShapeInfo **info))                                    \
  X(69, OrtStatus *, CreateCpuMemoryInfo, (int allocator, int memory, OrtMemoryInfo **info))      \
  X(90, OrtStatus *, KernelContext_GetInput,                                                      \
    (const OrtKernelContext *context, size_t number, const OrtValue **value))                     \
  X(91, OrtStatus *, KernelContext_GetOutput,                                                     \
    (OrtKernelContext * context, size_t number, const int64_t *shape, size_t rank,                \
     OrtValue **value))                                                                           \
  X(93, void, ReleaseStatus, (OrtStatus * status))                                                \
  X(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo * info))                  \
  X(237, OrtStatus *, HasSessionConfigEntry,                                                      \
    (const OrtSessionOptions *options, const char *key, int *found))                              \
  X(238, OrtStatus *, GetSessionConfigEntry,                                                      \
    (const OrtSessionOptions *options, const char *key, char *value, size_t *size))               \
  X(247, OrtStatus *, Logger_LogMessage,                                                          \
    (const OrtLogger *logger, int level, const char *message, const char *file, int line,         \
     const char *function))                                                                       \
  X(272, OrtStatus *, ReadOpAttr,                                                                 \
    (const OrtOpAttr *attribute, int type, void *data, size_t bytes, size_t *needed))             \
  X(289, OrtStatus *, GetValueInfoName, (const OrtValueInfo *info, const char **name))            \
  X(298, void, GetKeyValuePairs,                                                                  \
    (const OrtKeyValuePairs *pairs, const char *const **keys, const char *const **values,         \
     size_t *count))                                                                              \
  X(300, void, ReleaseKeyValuePairs, (OrtKeyValuePairs * pairs))                                  \
  X(301, OrtStatus *, RegisterExecutionProviderLibrary,                                           \
    (OrtEnv * env, const char *name, const char *path))                                           \
  X(303, OrtStatus *, GetEpDevices,                                                               \
    (const OrtEnv *env, const OrtEpDevice *const **devices, size_t *count))                       \
  X(304, OrtStatus *, SessionOptionsAppendExecutionProvider_V2,                                   \
    (OrtSessionOptions * options, OrtEnv * env, const OrtEpDevice *const *devices, size_t count,  \
     const char *const *keys, const char *const *values, size_t option_count))                    \
  X(307, int, HardwareDevice_Type, (const OrtHardwareDevice *device))                             \
  X(312, const char *, EpDevice_EpName, (const OrtEpDevice *device))                              \
  X(317, const OrtEpApi *, GetEpApi, (void))                                                      \
  X(334, OrtStatus *, Graph_GetModelPath, (const OrtGraph *graph, const char **path))             \
  X(344, OrtStatus *, Graph_GetNumNodes, (const OrtGraph *graph, size_t *count))                  \
  X(345, OrtStatus *, Graph_GetNodes,                                                             \
    (const OrtGraph *graph, const OrtNode **nodes, size_t count))                                 \
  X(346, OrtStatus *, Graph_GetParentNode, (const OrtGraph *graph, const OrtNode **node))         \
  X(349, OrtStatus *, Node_GetName, (const OrtNode *node, const char **name))                     \
  X(350, OrtStatus *, Node_GetOperatorType, (const OrtNode *node, const char **name))             \
  X(351, OrtStatus *, Node_GetDomain, (const OrtNode *node, const char **name))                   \
  X(353, OrtStatus *, Node_GetNumInputs, (const OrtNode *node, size_t *count))                    \
  X(354, OrtStatus *, Node_GetInputs,                                                             \
    (const OrtNode *node, const OrtValueInfo **values, size_t count))                             \
  X(355, OrtStatus *, Node_GetNumOutputs, (const OrtNode *node, size_t *count))                   \
  X(356, OrtStatus *, Node_GetOutputs,                                                            \
    (const OrtNode *node, const OrtValueInfo **values, size_t count))                             \
  X(361, OrtStatus *, Node_GetAttributeByName,                                                    \
    (const OrtNode *node, const char *name, const OrtOpAttr **attribute))                         \
  X(379, OrtStatus *, GetSessionOptionsConfigEntries,                                             \
    (const OrtSessionOptions *options, OrtKeyValuePairs **entries))

#define ORT_EP_ENTRIES(X)                                                                         \
  X(0, OrtStatus *, CreateEpDevice,                                                               \
    (OrtEpFactory * factory, const OrtHardwareDevice *device, const OrtKeyValuePairs *metadata,   \
     const OrtKeyValuePairs *options, OrtEpDevice **result))                                      \
  X(2, OrtStatus *, EpGraphSupportInfo_AddNodesToFuse,                                            \
    (OrtEpGraphSupportInfo * info, const OrtNode *const *nodes, size_t count,                     \
     const void *options))                                                                        \
  X(65, OrtStatus *, CreateProfilingEvent,                                                        \
    (int category, int32_t process, int32_t thread, const char *name, int64_t start_us,           \
     int64_t duration_us, const char *const *keys, const char *const *values, size_t count,       \
     OrtProfilingEvent **event))                                                                  \
  X(66, void, ReleaseProfilingEvent, (OrtProfilingEvent * event))                                 \
  X(72, OrtStatus *, ProfilingEventsContainer_AddEvents,                                          \
    (OrtProfilingEventsContainer * container, const OrtProfilingEvent *const *events,             \
     size_t count))

/* ort_Name(table) is the entry with its type. */
#define ORT_ACCESSOR(table, place, result, name, parameters)                                     \
  typedef result(*ort_##name##_function) parameters;                                              \
  static inline ort_##name##_function ort_##name(const table *api) {                              \
    return (ort_##name##_function)api->entry[place];                                              \
  }
#define ORT_API_ACCESSOR(place, result, name, parameters)                                        \
  ORT_ACCESSOR(OrtApi, place, result, name, parameters)
#define ORT_EP_API_ACCESSOR(place, result, name, parameters)                                     \
  ORT_ACCESSOR(OrtEpApi, place, result, name, parameters)
ORT_ENTRIES(ORT_API_ACCESSOR)
ORT_EP_ENTRIES(ORT_EP_API_ACCESSOR)

/* What a provider implements. ONNX Runtime reads no member that a later version than `version` has
 * added: it is ORT_API_VERSION, and ORT_API_PROFILING for an OrtEp with a profiler. Members that may
 * be null pointers and are so here have no type. */
struct OrtNodeComputeInfo {
  uint32_t version;
  OrtStatus *(*CreateState)(OrtNodeComputeInfo *self, OrtNodeComputeContext *context,
                            void **state);
  OrtStatus *(*Compute)(OrtNodeComputeInfo *self, void *state, OrtKernelContext *context);
  void (*ReleaseState)(OrtNodeComputeInfo *self, void *state);
};

struct OrtEp {
  uint32_t version;
  const char *(*GetName)(const OrtEp *self);
  OrtStatus *(*GetCapability)(OrtEp *self, const OrtGraph *graph, OrtEpGraphSupportInfo *info);
  OrtStatus *(*Compile)(OrtEp *self, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                        OrtNodeComputeInfo **results, OrtNode **context_nodes);
  void (*ReleaseNodeComputeInfos)(OrtEp *self, OrtNodeComputeInfo **infos, size_t count);
  ort_entry GetPreferredDataLayout, ShouldConvertDataLayoutForOp, SetDynamicOptions, OnRunStart,
      OnRunEnd, CreateAllocator, CreateSyncStreamForDevice, GetCompiledModelCompatibilityInfo;
  ort_entry GetKernelRegistry, IsConcurrentRunSupported, Sync;
  OrtStatus *(*CreateProfiler)(OrtEp *self, OrtEpProfilerImpl **profiler);
  ort_entry later[16]; /* null pointers: graph capture and what was added with it */
};

/* StartProfiling: offset_ns since ONNX Runtime's own start, which is 0 for times of events. */
struct OrtEpProfilerImpl {
  uint32_t version;
  void (*Release)(OrtEpProfilerImpl *self);
  OrtStatus *(*StartProfiling)(OrtEpProfilerImpl *self, int64_t offset_ns);
  ort_entry StartEvent, StopEvent;
  OrtStatus *(*EndProfiling)(OrtEpProfilerImpl *self, OrtProfilingEventsContainer *container);
};

struct OrtEpFactory {
  uint32_t version;
  const char *(*GetName)(const OrtEpFactory *self);
  const char *(*GetVendor)(const OrtEpFactory *self);
  OrtStatus *(*GetSupportedDevices)(OrtEpFactory *self, const OrtHardwareDevice *const *devices,
                                    size_t count, OrtEpDevice **results, size_t room,
                                    size_t *result_count);
  OrtStatus *(*CreateEp)(OrtEpFactory *self, const OrtHardwareDevice *const *devices,
                         const OrtKeyValuePairs *const *metadata, size_t count,
                         const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **ep);
  void (*ReleaseEp)(OrtEpFactory *self, OrtEp *ep);
  uint32_t (*GetVendorId)(const OrtEpFactory *self);
  const char *(*GetVersion)(const OrtEpFactory *self);
  ort_entry ValidateCompiledModelCompatibilityInfo;
  OrtStatus *(*CreateAllocator)(OrtEpFactory *self, const OrtMemoryInfo *info,
                                const OrtKeyValuePairs *options, void **allocator);
  void (*ReleaseAllocator)(OrtEpFactory *self, void *allocator);
  OrtStatus *(*CreateDataTransfer)(OrtEpFactory *self, void **transfer);
  bool (*IsStreamAware)(const OrtEpFactory *self);
  ort_entry CreateSyncStreamForDevice;
};

/* What the library exports; all else in it is hidden. */
#define ORT_EXPORT __attribute__((visibility("default")))
ORT_EXPORT OrtStatus *CreateEpFactories(const char *name, const OrtApiBase *base,
                                        const OrtLogger *logger, OrtEpFactory **factories,
                                        size_t room, size_t *count);
ORT_EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *factory);

#ifdef __cplusplus
}
#endif

#endif
