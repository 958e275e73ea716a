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

// Raft's own MemoryStorage, driven by the same operations, answers every
// question as the log does.
func TestAsMemoryStorageDoes(t *testing.T) {
	for seed := range uint64(20) {
		_, log := openLog(t, storage.Options{Inline: true})
		twin := raft.NewMemoryStorage()
		rng := rand.New(rand.NewPCG(seed, 2))
		for i, s := range script(seed, 60) {
			err := error(nil)
			if i == 0 {
				err = log.Bootstrap(s.ops[0].(Install).ConfState)
			} else {
				err = play(log, s)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, op := range s.ops {
				if err := drive(twin, op); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, rng, log, twin)
			if t.Failed() {
				t.Fatalf("seed %d, after step %d: %T", seed, i, s.ops)
			}
		}
	}
}

func drive(twin *raft.MemoryStorage, op Op) error {
	switch op := op.(type) {
	case Append:
		if op.HardState != nil {
			return errors.Join(twin.SetHardState(op.HardState), twin.Append(op.Entries))
		}
		return twin.Append(op.Entries)
	case Truncate:
		return twin.Compact(op.Index)
	case Install:
		return twin.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: new(op.Index), Term: new(op.Term), ConfState: op.ConfState,
		}})
	}
	return nil
}

func compare(t *testing.T, rng *rand.Rand, log, twin raft.Storage) {
	t.Helper()
	same := func(question string, ask func(raft.Storage) (any, error)) {
		got, err := ask(log)
		want, wantErr := ask(twin)
		if fmt.Sprint(got) != fmt.Sprint(want) || !errors.Is(err, wantErr) {
			t.Errorf("%s: %v, %v; want %v, %v", question, got, err, want, wantErr)
		}
	}
	same("first", func(s raft.Storage) (any, error) { return s.FirstIndex() })
	same("last", func(s raft.Storage) (any, error) { return s.LastIndex() })
	first, _ := twin.FirstIndex()
	last, _ := twin.LastIndex()
	for index := first - 1; index <= last+1; index++ {
		same(fmt.Sprint("term of ", index), func(s raft.Storage) (any, error) { return s.Term(index) })
	}
	if first > 1 {
		same("a term that is truncated", func(s raft.Storage) (any, error) { return s.Term(first - 2) })
	}
	if first > last {
		return // MemoryStorage panics where it is asked for entries of an empty log
	}
	for range 5 {
		low := first - 1 + rng.Uint64N(last-first+2)
		high := low + 1 + rng.Uint64N(last+1-low)
		if high > last+1 {
			continue
		}
		limit := rng.Uint64N(6000)
		same(fmt.Sprintf("entries from %d to %d within %d", low, high, limit),
			func(s raft.Storage) (any, error) { return s.Entries(low, high, limit) })
	}
}

// Raft may append to the entries it was given, and reads them on while the log
// is overwritten behind them.
func TestEntriesGivenOutStayAsTheyAre(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(1, 0, 1), Entries: entries(2, 6, 1)})
	given, err := log.Entries(2, 4, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(given)
	_ = append(given, entry(99, 99, "raft's own"))
	if term, err := log.Term(4); err != nil || term != 1 {
		t.Errorf("entry 4 is of term %d now, %v", term, err)
	}
	mustCarryOut(t, log, Append{HardState: hardState(2, 0, 1), Entries: entries(2, 3, 2)})
	if got := fmt.Sprint(given); got != want {
		t.Errorf("given out %s, and now %s", want, got)
	}
}

// The memory taken is told, and given back by a truncation.
func TestBytes(t *testing.T) {
	_, log := openLog(t, storage.Options{})
	if err := log.Bootstrap(members(1)); err != nil {
		t.Fatal(err)
	}
	before := log.Bytes()
	big := entry(2, 1, string(make([]byte, 1<<20)))
	mustCarryOut(t, log, Append{HardState: hardState(1, 0, 2), Entries: []*raftpb.Entry{big}}, Apply{Index: 2, Term: 1})
	if got := log.Bytes() - before; got < 1<<20 {
		t.Errorf("an entry of a mebibyte takes %d", got)
	}
	mustCarryOut(t, log, Truncate{Index: 2})
	if got := log.Bytes(); got != before {
		t.Errorf("%d bytes after the truncation, %d before", got, before)
	}
}
