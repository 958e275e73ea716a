package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"time"

	xtrace "golang.org/x/exp/trace"
)

// A call goes from the caller to the disk of two members and back. Which of them is last, and
// so part of the way, depends on the disks, so several runs may be needed to see every part.
// The trace must not be that of another test, so it runs before the parallel ones.
func TestRun_Path(t *testing.T) {
	o := options{path: time.Second, turns: 1, length: time.Second, dir: t.TempDir()}
	missing := []string{"lock: ", "unlock: ", "\ncaller ", "\nloop ", "\nstorage ", "\nPebble's log writer ", "\nwriter to a peer ", "\nreader of a peer "}
	var out bytes.Buffer
	for runs := 0; runs < 10 && len(missing) > 0; runs++ {
		if err := run(t.Context(), o, &out); err != nil {
			t.Fatal(err)
		}
		missing = slices.DeleteFunc(missing, func(part string) bool { return strings.Contains(out.String(), part) })
	}
	if len(missing) > 0 {
		t.Errorf("no %q in %d bytes that end with:\n%s", missing, out.Len(), out.Bytes()[max(0, out.Len()-4000):])
	}
	if entries, err := os.ReadDir(filepath.Join(o.dir, "path")); !os.IsNotExist(err) {
		t.Errorf("the members' data is left: %v, %v", entries, err)
	}
}

// The parts of each way add up to the time of the call, in the order in which they were.
func TestHistory_WaysAddUp(t *testing.T) {
	// With one processor the other goroutine waits when a call begins; with two it may be at work still.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	forward, back := make(chan struct{}, 1), make(chan struct{}, 1)
	go func() {
		for range forward {
			back <- struct{}{}
		}
		close(back)
	}()
	var recorded bytes.Buffer
	if err := trace.Start(&recorded); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		trace.WithRegion(context.Background(), "call", func() { forward <- struct{}{}; <-back })
	}
	trace.Stop()
	close(forward)
	<-back
	h, err := readHistory(&recorded)
	if err != nil || len(h.calls) != 100 {
		t.Fatalf("%d calls: %v", len(h.calls), err)
	}
	explained := 0
	for _, c := range h.calls {
		way, err := h.way(c)
		if err != nil {
			continue // the other goroutine was at work already, after an interruption
		}
		explained++
		var sum time.Duration
		for _, s := range way {
			if s.network < 0 || s.waits < 0 || s.runs < 0 || s.system < 0 {
				t.Fatalf("a time is negative: %v", way)
			}
			sum += s.network + s.waits + s.runs + s.system
		}
		if took := time.Duration(c.end - c.begin); sum != took {
			t.Fatalf("the parts of a call of %v sum up to %v: %v", took, sum, way)
		}
	}
	if explained < 50 { // the scheduler may interrupt some
		t.Errorf("%d of 100 calls are explained", explained)
	}
	if _, err := readHistory(bytes.NewReader([]byte("no trace"))); err == nil {
		t.Error("read what is no trace")
	}
	if _, err := new(history).way(traced{kind: "call", caller: xtrace.GoID(1), begin: 1, end: 2}); err != nil {
		t.Errorf("a caller without events has all of its call: %v", err)
	}
}
