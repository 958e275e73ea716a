//go:build unix

package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// A restored group raises the epoch of its fences. Scripts that compare numbers go on.
func TestLock_FenceIsDecimalAfterRestore(t *testing.T) {
	dir := t.TempDir()
	old := member(t, dir+"/old")
	const script = `[ "$CONCLAVE_FENCE" -gt "${1:-0}" ] && echo "$CONCLAVE_FENCE"`
	last := strings.TrimSpace(must(t, old, "lock", "x", "--", "sh", "-c", script))
	must(t, old, "backup", dir+"/backup")
	must(t, old, "restore", dir+"/backup", "--dir", dir+"/restored")
	n := member(t, dir+"/restored")
	text := strings.TrimSpace(must(t, n, "lock", "x", "--", "sh", "-c", script, "sh", last))
	number, err := strconv.ParseUint(text, 10, 64)
	must0(t, err)
	if shown := conclave.Fence(number).String(); !strings.HasPrefix(shown, "1:") {
		t.Errorf("fence %s, want one with an epoch", shown)
	}
	tokens, err := fencing.Parse([]string{strings.TrimSpace(must(t, n, "lock", "x, 2", "--", "sh", "-c", `echo "$CONCLAVE_FENCES"`))})
	if err != nil || len(tokens) != 1 || tokens[0].Lock != "x, 2" || uint64(tokens[0].Fence) <= number {
		t.Errorf("%v, want one of a later grant: %v", tokens, err)
	}
	for _, f := range []string{text, conclave.Fence(number).String()} {
		e := decoded[entryView](t, must(t, n, "kv", "put", "k", "v", "--fence", f, "-o", "json"))
		if e.Fence == nil || uint64(*e.Fence) != number {
			t.Errorf("written with fence %v, want %d", e.Fence, number)
		}
	}
	for _, f := range []string{"0", "01", "+1", "1:01", "18446744073709551616"} {
		want(t, conclaveAt(n, "kv", "put", "k", "v", "--fence", f), 2, "fence")
	}
}
