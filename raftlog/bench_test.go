package raftlog

import (
	"fmt"
	"testing"

	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3/raftpb"
)

// BenchmarkAppendAndApply measures one round of the log: a synced append, then an
// unsynced apply.
func BenchmarkAppendAndApply(b *testing.B) {
	for _, size := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			store, err := storage.Open(storage.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			log, err := Open(store)
			if err != nil {
				b.Fatal(err)
			}
			if err := log.Bootstrap(voters(1)); err != nil {
				b.Fatal(err)
			}
			data := string(make([]byte, size))
			b.ReportAllocs()
			index := uint64(1)
			for b.Loop() {
				index++
				err := write(log, Append{HardState: hardState(1, 1, index), Entries: []*raftpb.Entry{entry(index, 1, data)}})
				if err == nil {
					err = write(log, Checkpoint{After: index - 1, Index: index, Term: 1})
				}
				if err == nil && index%1000 == 0 {
					err = write(log, Truncate{Index: index - 100})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
