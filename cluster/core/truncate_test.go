package core

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/raftlog"
)

// grow appends and commits entries of a size, and returns the indexes up to which the
// log was truncated.
func (r *rig) grow(n, size int) (truncated []uint64) {
	r.t.Helper()
	for range n {
		e := empty(r.last+1, 5)
		if size > 0 {
			e.Type, e.Data = raftpb.EntryNormal.Enum(), nil
			e.Data = append(appendEntryHeader(nil), make([]byte, size)...)
		}
		r.mustReceive(message(raftpb.MsgApp, 2, 5, following(r.last, 5, e), commit(r.last+1)))
		for {
			out, err := r.Take(0)
			if err != nil {
				r.t.Fatal(err)
			}
			if len(out.Batch.writes) == 0 {
				break
			}
			for _, w := range out.Batch.writes {
				if op, ok := w.op.(raftlog.Truncate); ok {
					truncated = append(truncated, op.Index)
				}
			}
			r.persist(out.Batch.writes)
		}
	}
	return truncated
}

// The log is truncated once that is worth a write, and keeps some applied entries for
// lagging members.
func TestTruncate(t *testing.T) {
	const keep = 5
	t.Run("by number", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Keep = keep }).follow()
		for range 3 {
			first, _ := r.log.FirstIndex()
			for r.applied+1 < first+2*keep {
				if truncated := r.grow(1, 0); len(truncated) > 0 {
					t.Fatalf("truncates up to %d when %d are applied from %d on", truncated, r.applied, first)
				}
			}
			truncated := r.grow(1, 0)
			if len(truncated) != 1 || truncated[0] != r.applied-keep {
				t.Fatalf("truncates up to %d when %d are applied from %d on; want %d", truncated, r.applied, first, r.applied-keep)
			}
			if first, _ = r.log.FirstIndex(); first != truncated[0]+1 {
				t.Fatalf("the log begins at %d, truncated up to %d", first, truncated[0])
			}
		}
	})
	t.Run("by size", func(t *testing.T) {
		const bytes = 10_000
		r := newRig(t, func(c *Config) { c.KeepBytes = bytes }).follow()
		for range 3 {
			first, _ := r.log.FirstIndex()
			truncated := r.grow(1, bytes/10)
			for len(truncated) == 0 {
				if r.log.Bytes() > 5*bytes/2 {
					t.Fatalf("keeps %d bytes", r.log.Bytes())
				}
				truncated = r.grow(1, bytes/10)
			}
			if len(truncated) != 1 || truncated[0] != r.applied-(r.applied-first)/2 {
				t.Fatalf("truncates up to %d of %d to %d", truncated, first, r.applied)
			}
			if kept := r.log.Bytes(); kept < bytes/2 {
				t.Fatalf("%d bytes are left of %d that are to be kept", kept, bytes)
			}
		}
	})
}

// While voters differ the log waits for one that can decide, up to a limit of its bytes.
func TestTruncate_WaitsWhileVotersDiffer(t *testing.T) {
	const keepBytes = 1 << 20
	r := newRig(t, func(c *Config) { c.Keep, c.KeepBytes = 2, keepBytes }).follow()
	r.claim(r.applied, 7, 3)
	if truncated := r.grow(100, 0); len(truncated) > 0 {
		t.Errorf("truncates up to %d while voters differ", truncated)
	}
	var bytes uint64
	for len(r.grow(1, 1000<<10)) == 0 && bytes <= firstAllowance+3*keepBytes {
		bytes = r.log.Bytes()
	}
	if bytes < firstAllowance || bytes > firstAllowance+3*keepBytes {
		t.Errorf("keeps %d MiB while voters differ, want %d", bytes>>20, firstAllowance>>20)
	}
	s := newRig(t, func(c *Config) { c.Keep = 2 }).follow()
	s.claim(s.applied, 7, 3)
	s.claim(s.applied, 0, 2)
	if truncated := s.grow(100, 0); len(truncated) == 0 {
		t.Error("does not truncate after a majority has agreed")
	}
}
