"""What every option of trtexec 7 to 11 and of tensorrt_rtx does to the latency that it prints.

From sampleOptions.cpp of TensorRT's samples. An option that stands nowhere here leaves the run out:
it may change what is timed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hybridlat.store.importers.table import Refusal

CONTRADICTION = "the log contradicts --target"
MIXED = "no target has this precision or this mix"

# GPU Compute Time is the same with and without them, or they are read as what they are.
_PLAIN = re.compile(
    "allocationStrategy|allowGPUFallback|asyncFileReader|avg(Runs|Timing)|(max)?[bB]atch|buildOnly"
    "|builderCache|calib|calibProfile|deploy|device|dump(LayerInfo|OptimizationProfile|Output)"
    "|dumpRawBindingsToFile|duration|errorOnTimingCacheMiss|excludeLeanRuntime|explicitBatch"
    "|explicitPrecision|export(LayerInfo|Output|Times|TimingCache)|exposeDMA|fp16|bf16|int8|noTF32"
    "|getPlanVersionOnly|help|includeDataTransfers|iterations|leanDLLPath|load(Engine|Inputs)"
    "|(min|opt|max)Shapes(Calib)?|shapes|minTiming|model|monitorMemory|no(Builder|Compilation)Cache"
    "|noDataTransfers|nvtxMode|nvtxVerbosity|onnx|output|percentile|profilingVerbosity"
    "|runtimeCacheFile|saveEngine|separateProfileRun|setPluginsToSerialize|skipInference|sleepTime"
    "|stronglyTyped|tempdir|tempfileControls|threads|timeDeserialize|timingCacheFile|uff|uffInput"
    "|(use|no)CudaGraph|useSpinWait|v|verbose"
)
# They bound what the builder may choose: a record keeps them.
_KEPT = re.compile(
    "computeCapabilities|(dynamic|static)?[pP]lugins|ignoreParsedPluginLibs|l2LimitForTiling"
    "|max(AuxStreams|Tactics)|memPoolSize|preview|quantizationFlags|specializeStrategyDS"
    "|tacticSources|workspace"
)
# Another thing is timed, unless the option has a value that fits the pattern behind it.
_FORMATS = r"((fp32|int32|int64):)?chw(,((fp32|int32|int64):)?chw)*"
_OTHER = {
    "part of the network runs on a DLA":
        "useDLACore=-1 layerDeviceTypes buildDLAStandalone uint8AsymmetricQuantizationDLA",
    "several inferences run at once": "streams=[01] infStreams=[01]",
    "the weights are sparse": "sparsity=disable",
    MIXED:
        "best fp8 int4 fp4 strictTypes layerPrecisions layerOutputTypes precisionConstraints=none",
    "the inputs or outputs have another type or layout":
        f"inputIOFormats={_FORMATS} outputIOFormats={_FORMATS} directIO uffNHWC",
    "the engine is built under other rules than usual":
        "builderOptimizationLevel=3 heuristic versionCompatible vc useRuntime=full consistency "
        "hardwareCompatibilityLevel=none runtimePlatform=SameAsBuild restricted safetyPlugins std "
        "remoteAutoTuningConfig refit refitFromOnnx timeRefit dumpRefit saveRefittedEngine cpuOnly "
        "stripWeights stripAllWeights pluginInstanceNorm tilingOptimizationLevel=(0|none) "
        "decomposableAttentions distributiveIndependence serialized safe",
    "the weights or the data lie elsewhere than usual":
        r"allowWeightStreaming weightStreamingBudget useManagedMemory persistentCacheRatio=[0.]+",
    "more than the inference is timed":
        "dumpProfile exportProfile markDebug markUnfusedTensorsAsDebugTensors dumpDebugTensors "
        "saveDebugTensors saveAllDebugTensors",
    "the GPU is not warm and busy": r"idleTime=0(\.0*)? warmUp=.*[1-9].*",
    "how it is launched, or with which sizes, is not known":
        "cudaGraphStrategy=disabled? profile=0 useProfile=0",
}  # fmt: skip
_PATTERNS = {
    word.partition("=")[0]: (word.partition("=")[2], effect)
    for effect, words in _OTHER.items()
    for word in words.split()
}
# What a log prints of options whose command it does not hold.
_PRINTED = re.compile(
    r"&&&& FAILED|\b(?:DLACore: *[0-9]|Sparsity: (?:En|Fo)|(?:Inference s|S)treams: (?![01]\b)[0-9]"
    r"|Layer ?Precisions: *\S|Layer Device Types: *\S|Build DLA standalone mode: Enabled"
    r"|(?:In|Out)put\(s\)s? format: *\S*(?:16|8|hwc|HWC|chw[0-9]|CHW[0-9])"
    r"|(?:Refit|Safe mode|Restricted mode|DirectIO mode|Version Compatible): Enabled).*"
)


def check(options: Mapping[str, str], text: str) -> None:
    """Raise Refusal for a run that failed, or that timed something else than the network."""
    for name, value in options.items():
        pattern, effect = _PATTERNS.get(name, ("", ""))
        if not (effect or _PLAIN.fullmatch(name) or _KEPT.fullmatch(name)):
            effect = "it is not known whether the option changes what is timed"
        if pattern and re.fullmatch(pattern, value, re.IGNORECASE):
            continue
        if name in ("dumpProfile", "exportProfile") and "separateProfileRun" in options:
            continue
        if effect:
            raise Refusal(effect, f"--{name}={value}"[:80].rstrip("="), "run trtexec without it")
    if printed := _PRINTED.search(text):
        reason = "the run failed, or is no plain one of the GPU"
        raise Refusal(reason, printed[0][:80], "run it again")
    names = ("optShapes", "maxShapes", "minShapes")
    built = next((options[name] for name in names if options.get(name)), "")
    run = options.get("shapes") or built
    if other := set(run.split(",")).difference((built or run).split(",")):
        raise Refusal("the engine is built for other sizes", min(other)[:80], "build it for these")


def kept(options: Mapping[str, str]) -> str:
    """The options that a record keeps, as they were written."""
    names = sorted(name for name in options if _KEPT.fullmatch(name))
    return " ".join(f"--{name}={options[name]}".rstrip("=") for name in names)[:500]
