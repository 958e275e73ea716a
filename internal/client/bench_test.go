package client

import (
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// The client's part of a cycle, with a group that applies commands on another goroutine.
func BenchmarkCycle(b *testing.B) {
	c, _ := newFake(b)
	var l Lock
	l.Init(c, LockConfig{Space: wire.Space_LOCK, Name: "x"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Acquire(b.Context(), true, nil, nil); err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}
