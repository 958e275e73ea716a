package core

import (
	"encoding/binary"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Gathering one entry of 64 commands: each of them changes its lock, stores an outcome and drops the one
// of its predecessor.
func BenchmarkGathered_Add(b *testing.B) {
	const commands, rounds = 64, 512
	ticket := func(n int) []byte {
		return binary.BigEndian.AppendUint64(append([]byte("t"), make([]byte, 16)...), uint64(n))
	}
	var entries [][]wire.Change
	for round := range rounds {
		entry := []wire.Change{{Key: []byte("m"), Value: make([]byte, 20)}, {Key: []byte("i0123456789abcdef"), Value: make([]byte, 20)}}
		for i := range commands {
			lock := wire.Change{Key: fmt.Appendf(nil, "llocks/%d", i)}
			if round%2 == 0 {
				lock.Value = make([]byte, 60)
			}
			entry = append(entry, lock, wire.Change{Key: ticket(round*commands + i), Value: make([]byte, 12), Created: true},
				wire.Change{Key: ticket((round-1)*commands + i)})
		}
		entries = append(entries, entry)
	}
	e := &raftpb.Entry{}
	c := checkpoints{raftNode: new(raftNode), digests: new(digests)}
	b.ReportAllocs()
	for b.Loop() {
		for _, changes := range entries {
			c.gathered.add(changes, e, 0)
		}
		c.takeCheckpoint()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rounds*commands), "ns/command")
}
