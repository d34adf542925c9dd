#!/bin/sh
# Measure this plan with trtexec: sh run.sh. Needs a POSIX shell and trtexec (TensorRT 8.2 to 11),
# nothing else. Goes on where an earlier run stopped; results go to results.jsonl, a line each.
#
#   TRTEXEC=/path/to/trtexec   where it is not on the PATH nor where JetPack puts it
#   ROUNDS=3 SECONDS_EACH=1    visits of every model, and how long each is
#   LIMIT=900                  seconds after which one model is given up
#   RESULTS=results.jsonl      another file for another board
#   HYBRIDLAT_LOCK=FILE        what runs on this board lock in turn
#
# Ends with 0 done, 2 bad input, 3 no trtexec, 5 the GPU is lost.
set -u
cd "$(dirname "$0")" || exit 2
RESULTS=${RESULTS:-results.jsonl}
ROUNDS=${ROUNDS:-$(cat rounds.txt)}
SECONDS_EACH=${SECONDS_EACH:-1}
LIMIT=${LIMIT:-900}
WARM_MS=400
LC_ALL=C
export LC_ALL
TAB=$(printf '\t')

die() { echo "run.sh: $2" >&2; exit "$1"; }

# ---------------------------------------------------------------- is the plan whole
[ "$(tail -n 1 files.txt 2>/dev/null)" = end ] || die 2 "files.txt is damaged: copy the plan again"
while read -r sum size file; do
    [ "$sum" != end ] || break
    [ -f "$file" ] && [ "$(cksum <"$file")" = "$sum $size" ] ||
        die 2 "$file is not as it was written: copy the plan again"
done <files.txt

# ---------------------------------------------------------------- one run at a time on a board
child=
stop() { # what runs is ended as well; timeout(1) hands it on to trtexec
    trap '' HUP INT TERM
    if [ -n "$child" ]; then kill "$child" 2>/dev/null; wait "$child"; fi
    exit "$1"
}
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 143' TERM
finish() { # wait for the last command in the background; its status
    child=$!
    wait "$child"
    set -- "$?"
    child=
    return "$1"
}
LOCK=${HYBRIDLAT_LOCK:-/tmp/hybridlat-board.lock}
if command -v flock >/dev/null 2>&1; then # held until the last process of this run has ended
    [ -e "$LOCK" ] || [ -L "$LOCK" ] || (umask 0; : >>"$LOCK") 2>/dev/null
    [ -f "$LOCK" ] && [ ! -L "$LOCK" ] && [ -r "$LOCK" ] || die 2 "$LOCK cannot be locked: set HYBRIDLAT_LOCK to another file"
    exec 9<"$LOCK"
    flock -n 9 || {
        echo "run.sh: another run measures on this board ($(head -n 1 "$LOCK")): waiting for it" >&2
        flock 9 &
        finish
    }
    (echo "process $$ in $(pwd)" >"$LOCK") 2>/dev/null
else
    echo "run.sh: flock is not here, so two runs at once on this board are not noticed" >&2
fi

# ---------------------------------------------------------------- trtexec and what it understands
find_trtexec() {
    if [ -n "${TRTEXEC:-}" ]; then echo "$TRTEXEC"; return; fi
    PATH=$PATH:/usr/src/tensorrt/bin:/usr/local/tensorrt/bin:/opt/tensorrt/bin:/usr/local/TensorRT/bin:/usr/bin
    command -v trtexec
}
TRTEXEC=$(find_trtexec)
[ -n "$TRTEXEC" ] && [ -x "$TRTEXEC" ] || die 3 "trtexec is not here: set TRTEXEC to its path"
mkdir -p logs layers || die 2 "$(pwd) cannot be written: copy the plan to a folder that can"
"$TRTEXEC" --help >logs/help.txt 2>&1
code=$(sed -n 's/.*\[TensorRT v\([0-9][0-9]*\)\].*/\1/p' logs/help.txt | head -n 1)
[ -n "$code" ] || die 3 "$TRTEXEC does not say its version (see logs/help.txt)"
if [ "$code" -lt 10000 ]; then
    MAJOR=$((code / 1000)) MINOR=$((code / 100 % 10))
else
    MAJOR=$((code / 10000)) MINOR=$((code / 100 % 100))
fi
RUNTIME=$(cat runtime.txt)
case $RUNTIME in
    tensorrt | "tensorrt-$MAJOR.$MINOR") ;;
    *) die 2 "the plan is for $RUNTIME and this board has TensorRT $MAJOR.$MINOR: make one for tensorrt-$MAJOR.$MINOR" ;;
esac
knows() { grep -E -q -e "(^|[^A-Za-z-])--$1([^A-Za-z0-9]|\$)" logs/help.txt; }

flags_for() { # precision
    printf '%s\n' --useCudaGraph --useSpinWait --noDataTransfers "--warmUp=$WARM_MS" \
        "--duration=$SECONDS_EACH" --iterations=20 --avgRuns=1
    if knows memPoolSize; then echo --memPoolSize=workspace:1024; else echo --workspace=1024; fi
    if knows maxAuxStreams; then echo --maxAuxStreams=0; fi
    if knows profilingVerbosity; then echo --profilingVerbosity=detailed
    elif knows nvtxMode; then echo --nvtxMode=verbose; fi
    if knows timingCacheFile; then echo "--timingCacheFile=$ENGINES/timing.cache"; fi
    case $1 in
        fp32-strict) echo --noTF32 ;;
        fp32 | tf32) ;;
        *) if [ "$MAJOR" -lt 11 ]; then echo "--$1"; fi ;;
    esac
}

# ---------------------------------------------------------------- which board this is
text() { # a value as the inside of a JSON string
    printf '%s' "$1" | tr -d '\000-\037\177' | sed 's/\\/\\\\/g; s/"/\\"/g'
}
first_line() { if [ -r "$1" ]; then head -n 1 "$1" | tr -d '\000'; fi; }
smi() { # one field of nvidia-smi, empty where there is none
    command -v nvidia-smi >/dev/null 2>&1 || return 0
    nvidia-smi "--query-gpu=$1" --format=csv,noheader,nounits 2>/dev/null | head -n 1
}
MODEL=$(first_line /proc/device-tree/model)
JETPACK=$(first_line /etc/nv_tegra_release)
MODE=$(nvpmodel -q 2>/dev/null | tr '\n' ' ')
GPU=$(smi name)
DRIVER=$(smi driver_version)
UUID=$(smi uuid)
LIMIT_W=$(smi power.limit)
TOP_MHZ=$(smi clocks.max.sm)
IDENTITY="trtexec|$code|$MODEL|$JETPACK|$MODE|$GPU|$DRIVER|$UUID|$LIMIT_W|$TOP_MHZ"
BOARD_ID=$(printf '%s' "$IDENTITY" | cksum | tr -c '0-9\n' '-')
PLAN=$(cat plan.txt)
ENGINES=engines/$BOARD_ID # what another board built or timed runs slower here, or not at all
mkdir -p "$ENGINES"

gpu_clock() {
    if command -v nvidia-smi >/dev/null 2>&1; then smi clocks.sm; return; fi
    for file in /sys/class/devfreq/*gv11b*/cur_freq /sys/class/devfreq/*gp10b*/cur_freq \
        /sys/class/devfreq/*ga10b*/cur_freq /sys/class/devfreq/*gpu*/cur_freq; do
        if [ -r "$file" ]; then awk '{print $1 / 1000000}' "$file"; return; fi
    done
}
gpu_heat() {
    if command -v nvidia-smi >/dev/null 2>&1; then smi temperature.gpu; return; fi
    for file in /sys/class/thermal/thermal_zone*/type; do
        [ -r "$file" ] || continue
        case $(cat "$file") in
            [Gg][Pp][Uu]*) awk '{print $1 / 1000}' "${file%type}temp"; return ;;
        esac
    done
}
number() { printf '%s' "$1" | grep -E -x -e '-?[0-9]+(\.[0-9]+)?' || echo null; }
now() { date -u +%Y-%m-%dT%H:%M:%SZ; }
append() {
    printf '%s\n' "$1" >>"$RESULTS" || die 2 "$RESULTS cannot be written: is the disk full?"
    sync "$RESULTS" 2>/dev/null || sync
}
whole_lines() { # those whose braces pair, strings apart: a cut or a loss of power left the others
    tr '\000' '\001' <"$1" | awk '/^[{].*[}]$/ {
        line = $0
        gsub(/\\./, "", line)
        gsub(/"[^"]*"/, "", line)
        if (line !~ /"/ && gsub(/[{]/, "", line) == gsub(/[}]/, "", line)) print
    }'
}

if [ -e "$RESULTS" ]; then
    whole_lines "$RESULTS" >"$RESULTS.part" || die 2 "$RESULTS.part cannot be written"
    if cmp -s "$RESULTS" "$RESULTS.part"; then rm -f "$RESULTS.part"
    else sync; mv "$RESULTS.part" "$RESULTS"; fi
fi
if [ -s "$RESULTS" ] && grep -q '"kind": "board"' "$RESULTS"; then
    if grep '"kind": "board"' "$RESULTS" | grep -v -q "\"plan\": \"$PLAN\""; then
        die 2 "$RESULTS holds results of another plan: move it away to measure this one"
    fi
    if grep '"board_id":' "$RESULTS" | grep -v -q "\"board_id\": \"$BOARD_ID\""; then
        die 2 "$RESULTS holds results of another board, driver, TensorRT or power mode than this one ($(text "$IDENTITY")): set RESULTS to another file name"
    fi
else
    append "{\"kind\": \"board\", \"format\": 1, \"plan\": \"$PLAN\", \"board_id\": \"$BOARD_ID\", \"at\": \"$(now)\", \"board\": {\"runner\": \"trtexec\", \"engine\": \"tensorrt\", \"engine_version\": \"$MAJOR.$MINOR\", \"engine_code\": \"$code\", \"model\": \"$(text "$MODEL")\", \"jetpack\": \"$(text "$JETPACK")\", \"power_mode\": \"$(text "$MODE")\", \"gpu\": \"$(text "$GPU")\", \"driver\": \"$(text "$DRIVER")\", \"uuid\": \"$(text "$UUID")\", \"power_limit_w\": \"$(text "$LIMIT_W")\", \"max_sm_mhz\": \"$(text "$TOP_MHZ")\", \"system\": \"$(text "$(uname -srm)")\"}}"
fi

# ---------------------------------------------------------------- weights: noise, repeated
while IFS="$TAB" read -r name bytes; do
    file=models/$name
    size=0
    if [ -f "$file" ]; then size=$(wc -c <"$file"); fi
    [ "$size" -lt "$bytes" ] || continue
    [ -s "blocks/$name" ] || die 2 "blocks/$name is empty: copy the plan again"
    cp "blocks/$name" "$file.part" || die 2 "the disk is full: $file needs $bytes bytes"
    while [ "$(wc -c <"$file.part")" -lt "$bytes" ]; do
        cat "$file.part" "$file.part" >"$file.more" && mv "$file.more" "$file.part" ||
            die 2 "the disk is full: $file needs $bytes bytes"
    done
    mv "$file.part" "$file"
done <noise.txt

# ---------------------------------------------------------------- one model
LIMITER=
if command -v timeout >/dev/null 2>&1; then LIMITER="timeout $LIMIT"; fi
call() { # log: trtexec with the options in logs/flags, a line each
    log=$1
    while :; do
        set --
        while IFS= read -r flag; do set -- "$@" "$flag"; done <logs/flags
        $LIMITER "$TRTEXEC" "$@" >"$log" 2>&1 </dev/null &
        finish
        status=$?
        [ "$status" -ne 0 ] || return 0
        unknown=$(sed -n 's/.*Unknown option: \(--[A-Za-z0-9]*\).*/\1/p' "$log" | head -n 1)
        case $unknown in
            # What only reports, or only makes builds quicker. Streams: where the option is not
            # known there are none. Without any other what ran is not what the record says.
            --exportTimes | --exportLayerInfo | --profilingVerbosity | --nvtxMode | --avgRuns | \
                --timingCacheFile | --maxAuxStreams) ;;
            *) return "$status" ;;
        esac
        grep -q -E -e "^$unknown(=|\$)" logs/flags || return "$status"
        grep -v -E -e "^$unknown(=|\$)" logs/flags >logs/fewer
        mv logs/fewer logs/flags
    done
}
probe() { # 0: an engine that ran before runs, 1: it does not, 2: none has run yet
    for ran in "$ENGINES"/*.plan; do
        [ -s "$ran" ] || return 2
        printf '%s\n' "--loadEngine=$ran" --warmUp=0 --duration=0 --iterations=1 >logs/flags
        call logs/probe.log && return 0
        return 1
    done
}
is_lost() { # log of a call that failed: whether the GPU is, by its words where no engine has run
    probe
    case $? in 0) return 1 ;; 1) return 0 ;; esac
    grep -q -i -E -e 'no CUDA-capable|CUDA (driver|initialization)|is lost|fallen off|unknown error' \
        -e 'illegal memory access|unspecified launch failure|device.*(busy|unavailable)' "$1"
}
as_built() { # precision log: what trtexec says that it built instead, if that is another precision
    built=$(sed -n 's/.*Precision: *//p' "$2" | head -n 1)
    case $1/$built in
        */ | */*Strongly* | fp16/*FP16* | bf16/*BF16*) ;;
        fp16/* | bf16/* | */*+* | */*INT8* | */*FP8*) echo "$built" ;;
    esac
}
samples_of() { # compute times in microseconds, comma-separated, 200 at most, warm-up left out
    [ -s "$1" ] || return 1
    tr '{' '\n' <"$1" | awk -v warm="$WARM_MS" '
        function value(key,   at, rest) {
            at = index($0, "\"" key "\"")
            if (!at) return ""
            rest = substr($0, at + length(key) + 2)
            sub(/^[ \t]*:[ \t]*/, "", rest)
            sub(/[^0-9.eE+-].*/, "", rest)
            return rest
        }
        {
            time = value("computeMs")
            start = value("startComputeMs")
            if (time == "") next
            all[++n] = time * 1000
            if (start == "" || start + 0 >= warm) kept[++m] = time * 1000
        }
        END {
            if (m < 5) { m = n; for (i = 1; i <= n; i++) kept[i] = all[i] }
            if (m < 1) exit 1
            step = m > 200 ? m / 200 : 1
            for (i = 1; i <= m; i += step) printf "%s%.3f", (i > 1 ? ", " : ""), kept[int(i)]
        }'
}
summary_of() { # the median of the summary line, where times could not be exported
    sed -n 's/.*GPU Compute Time:.*median = \([0-9.eE+-]*\) ms.*/\1/p' "$1" | tail -n 1 |
        awk '{printf "%.3f", $1 * 1000}'
}
measure() { # item precision file typed round visit (a shell's variables are global: own names)
    m_item=$1 m_precision=$2 m_file=$3 m_typed=$4 m_round=$5 m_visit=$6
    case $m_precision in
        fp32 | fp32-strict | tf32) ;;
        *)
            if [ "$MAJOR" -ge 11 ]; then
                m_file=$m_typed
                [ "$m_typed" != - ] || {
                    fail "$m_item" "$m_round" "TensorRT $MAJOR takes $m_precision from the model's types, and the plan has no such model"
                    return
                }
            fi ;;
    esac
    m_again= # the GPU was lost with this model, and is there again: twice is the model's fault
    if grep -q -x -e "$m_item" logs/lost 2>/dev/null; then
        probe
        case $? in 0) m_again=yes ;; 1) die 5 "the GPU is still lost: restart the board first" ;; esac
    fi
    clock0=$(gpu_clock) heat0=$(gpu_heat)
    engine=$ENGINES/$m_item.plan
    rm -f logs/times.json
    {
        if [ -s "$engine" ]; then echo "--loadEngine=$engine"
        else echo "--onnx=models/$m_file"; echo "--saveEngine=$engine.part"; fi
        flags_for "$m_precision"
        echo --exportTimes=logs/times.json
        if [ ! -s "layers/$m_item.json" ]; then
            echo "--exportLayerInfo=logs/layers.json"
        fi
    } >logs/flags
    call "logs/$m_item.log"
    status=$?
    if [ "$status" -ne 0 ]; then
        rm -f "$engine.part"
        if [ -s "$engine" ] && [ "$status" -ne 124 ]; then # a cut may have damaged it: once more without
            rm -f "$engine"
            measure "$@"
            return
        fi
        rm -f "$engine"
        # Bytes, less the half of a character that may end them.
        why=$(grep -E '\[E\]|rror' "logs/$m_item.log" | tail -n 3 | awk '{
            if (length($0) > 300) { $0 = substr($0, 1, 300); sub(/[\300-\377][\200-\277]*$/, "") }
            print }' | tr '\n' ' ')
        if is_lost "logs/$m_item.log" && [ -z "$m_again" ]; then
            echo "$m_item" >>logs/lost
            die 5 "the GPU is lost ($why): the next run goes on from here; restart the board first"
        fi
        [ "$status" -ne 124 ] || why="no answer in $LIMIT s"
        fail "$m_item" "$m_round" "trtexec ended with status $status: $why"
        return
    fi
    built=$(as_built "$m_precision" "logs/$m_item.log")
    [ -z "$built" ] || {
        rm -f "$engine" "$engine.part"
        fail "$m_item" "$m_round" "trtexec built $built and not $m_precision"
        return
    }
    if [ -f "$engine.part" ]; then mv "$engine.part" "$engine"; fi
    launch=graph
    if grep -q -E 'useCudaGraph flag has been ignored|CUDA graph capture .*failed' "logs/$m_item.log"; then
        launch=enqueue
    fi
    if [ ! -s "layers/$m_item.json" ] && [ -s logs/layers.json ]; then
        printf '{"engine": %s}\n' "$(cat logs/layers.json)" >"layers/$m_item.json"
    fi
    rm -f logs/layers.json
    samples=$(samples_of logs/times.json) || samples=$(summary_of "logs/$m_item.log")
    case $samples in *[!0-9.,\ ]*) samples= ;; esac
    [ -n "$samples" ] || {
        fail "$m_item" "$m_round" "trtexec printed no GPU compute time (see logs/$m_item.log)"
        return
    }
    append "{\"kind\": \"visit\", \"format\": 1, \"task\": \"$m_item\", \"round\": $m_round, \"visit\": $m_visit, \"launch\": \"$launch\", \"board_id\": \"$BOARD_ID\", \"at\": \"$(now)\", \"samples_us\": {\"$m_item\": [$samples]}, \"sensors\": {\"$m_item\": {\"sm_mhz_before\": $(number "$clock0"), \"sm_mhz_after\": $(number "$(gpu_clock)"), \"temperature_c_before\": $(number "$heat0"), \"temperature_c_after\": $(number "$(gpu_heat)")}}}"
}
fail() {
    append "{\"kind\": \"failure\", \"format\": 1, \"task\": \"$1\", \"round\": $2, \"board_id\": \"$BOARD_ID\", \"at\": \"$(now)\", \"items\": [\"$1\"], \"error\": \"$(text "$3")\"}"
    echo "run.sh: $1 failed: $3" >&2
}
is_done() { grep -E '"kind": "(visit|failure)"' "$RESULTS" | grep -q "\"task\": \"$1\", \"round\": $2,"; }

# ---------------------------------------------------------------- all of them
TOTAL=$(wc -l <items.txt)
IFS="$TAB" read -r REFERENCE r_precision r_file r_typed <reference_item.txt # empty where there is none
count=0
visit=$(grep -c '"kind": "visit"' "$RESULTS") # each is a process of its own
round=0
while [ "$round" -lt "$ROUNDS" ]; do
    place=0
    while IFS="$TAB" read -r item precision file typed; do
        place=$((place + 1))
        if [ -n "$REFERENCE" ] && [ $((place % 10)) -eq 1 ]; then
            mark=$((round * 100000 + place))
            is_done "$REFERENCE" "$mark" || {
                measure "$REFERENCE" "$r_precision" "$r_file" "$r_typed" "$mark" "$visit"
                visit=$((visit + 1))
            }
        fi
        is_done "$item" "$round" && continue
        measure "$item" "$precision" "$file" "$typed" "$round" "$visit"
        visit=$((visit + 1))
        count=$((count + 1))
        echo "run.sh: round $((round + 1)) of $ROUNDS, model $place of $TOTAL" >&2
    done <items.txt
    round=$((round + 1))
done
rm -f logs/times.json logs/flags
echo "run.sh: $count measured now; results are in $(pwd)/$RESULTS" >&2
