# Commands that run beside one another, each with its output in a file.  Sourced by .ci/run.

lanes=()
showing=
declare -A group_of=()

# Start the command $2... beside the others, in a process group of its own; the lane is called $1.
lane() {
    : >"$room/$1.out"  # it is shown from now on, whenever the command starts
    set -m
    "${@:2}" >>"$room/$1.out" 2>&1 &
    group_of[$1]=$!
    set +m
    lanes+=("$1")
}

# Print the output of each lane, whole and in the order of their start, while the lanes run.  Return the status of the
# first of them that failed.
show_lanes() {
    local name status first=0
    for name in "${lanes[@]}"; do
        echo "== $name"
        tail -n +1 -f -s 0.2 --pid="${group_of[$name]}" "$room/$name.out" &
        showing=$!
        wait "$showing" || true  # a signal ends this, not a command in the foreground
        showing=
        status=0
        wait "${group_of[$name]}" || status=$?
        [ "$status" = 0 ] || echo "== $name failed with status $status"
        [ "$first" != 0 ] || first=$status
    done
    return "$first"
}

# End what still runs, with all that it started.
end_lanes() {
    local name
    for name in "${lanes[@]}"; do
        kill -- "-${group_of[$name]}" 2>/dev/null || true
    done
    [ -z "$showing" ] || kill "$showing" 2>/dev/null || true
    wait
}
