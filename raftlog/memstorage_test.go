package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/conclave-go/conclave/storage"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// After the same operations the log returns the same as raft.MemoryStorage.
func TestMemStorage_EqualsRaftMemoryStorage(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		_, log := openLog(t, storage.Options{Inline: true})
		reference := raft.NewMemoryStorage()
		rng := rand.New(rand.NewPCG(seed, 2))
		for i, s := range script(seed, 60) {
			if err := play(log, s); err != nil {
				t.Fatal(err)
			}
			for _, op := range s.ops {
				if err := applyTo(reference, op); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, rng, log, reference)
			if t.Failed() {
				t.Fatalf("seed %d, after step %d: %T", seed, i, s.ops)
			}
		}
	}
}

func applyTo(reference *raft.MemoryStorage, op Op) error {
	switch op := op.(type) {
	case Append:
		if op.HardState != nil {
			return errors.Join(reference.SetHardState(op.HardState), reference.Append(op.Entries))
		}
		return reference.Append(op.Entries)
	case Truncate:
		return reference.Compact(op.Index)
	case Install:
		return reference.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(op.Index), Term: new(op.Term), ConfState: op.ConfState,
		}})
	}
	return nil
}

func compare(t *testing.T, rng *rand.Rand, log, reference raft.Storage) {
	t.Helper()
	same := func(call string, f func(raft.Storage) (any, error)) {
		got, err := f(log)
		want, wantErr := f(reference)
		if fmt.Sprint(got) != fmt.Sprint(want) || !errors.Is(err, wantErr) {
			t.Errorf("%s = %v, %v; want %v, %v", call, got, err, want, wantErr)
		}
	}
	same("FirstIndex", func(s raft.Storage) (any, error) { return s.FirstIndex() })
	same("LastIndex", func(s raft.Storage) (any, error) { return s.LastIndex() })
	first, _ := reference.FirstIndex()
	last, _ := reference.LastIndex()
	for index := first - 1; index <= last+1; index++ {
		same(fmt.Sprintf("Term(%d)", index), func(s raft.Storage) (any, error) { return s.Term(index) })
	}
	if first > 1 {
		same("Term of a truncated entry", func(s raft.Storage) (any, error) { return s.Term(first - 2) })
	}
	if first > last {
		return // MemoryStorage panics on reading the entries of an empty log
	}
	for range 5 {
		low := first - 1 + rng.Uint64N(last-first+2)
		high := low + 1 + rng.Uint64N(last+1-low)
		if high > last+1 {
			continue
		}
		limit := rng.Uint64N(6000)
		same(fmt.Sprintf("Entries(%d, %d, %d)", low, high, limit),
			func(s raft.Storage) (any, error) { return s.Entries(low, high, limit) })
	}
}

// Raft may append to the entries it read, and still reads them after the log was
// overwritten.
func TestMemStorage_ReturnedEntriesStayUnchanged(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	bootstrap(t, log, 1)
	mustWrite(t, log, Append{HardState: hardState(1, 0, 1), Entries: entries(2, 6, 1)})
	returned, err := log.Entries(2, 4, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(returned)
	_ = append(returned, entry(99, 99, "appended by raft"))
	if term, err := log.Term(4); err != nil || term != 1 {
		t.Errorf("Term(4) = %d, %v; want 1", term, err)
	}
	mustWrite(t, log, Append{HardState: hardState(2, 0, 1), Entries: entries(2, 3, 2)})
	if got := fmt.Sprint(returned); got != want {
		t.Errorf("returned %s, which became %s", want, got)
	}
}

func TestMemStorage_BytesFollowAppendAndTruncate(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	bootstrap(t, log, 1)
	before := log.Bytes()
	big := entry(2, 1, string(make([]byte, 1<<20)))
	mustWrite(t, log, Append{HardState: hardState(1, 0, 2), Entries: []*raftpb.Entry{big}}, Checkpoint{After: 1, Index: 2, Term: 1})
	if got := log.Bytes() - before; got < 1<<20 {
		t.Errorf("an entry of 1 MiB adds %d bytes", got)
	}
	mustWrite(t, log, Truncate{Index: 2})
	if got := log.Bytes(); got != before {
		t.Errorf("%d bytes after the truncation, want %d", got, before)
	}
}
