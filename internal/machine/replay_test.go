package machine

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/wire"
)

// The same log leaves the same changes, entry by entry, and the same disk: when
// it is applied again, when several entries are written to the disk at once and
// a power cut takes back what was not, and from any snapshot on.
func TestReplay_Equivalent(t *testing.T) {
	for seed := range uint64(3) {
		log := randomLog(t, seed+1_000, 4_000)
		first := newReplay(log)
		first.run(t, len(log))
		for _, gather := range []int{1, 7, 100} {
			other := newReplay(log)
			other.gather, other.crash = gather, newRand(seed)
			other.run(t, len(log))
			first.compare(t, other, 0)
		}
		at := newRand(seed).IntN(len(log))
		before := newReplay(log)
		before.run(t, at)
		after := &replay{log: log, gather: 1, disk: before.disk, applied: at, written: at, digests: slices.Clone(before.digests)}
		after.load(t)
		after.run(t, len(log))
		first.compare(t, after, at)
	}
}

func randomLog(t *testing.T, seed uint64, n int) (log [][]byte) {
	t.Helper()
	g, r := newGenerator(seed), newRig()
	for g.made < n {
		data := g.entry(&r.model)
		if err := r.apply(data); err != nil {
			t.Fatal(err)
		}
		log = append(log, data)
	}
	return log
}

// replay applies a log and writes the changes of so many entries at once.
type replay struct {
	log     [][]byte
	gather  int
	crash   interface{ IntN(int) int } // nil: never
	m       *Machine
	disk    disk
	applied int
	written int
	pending []wire.Change
	digests []uint64 // of the changes, entry by entry
}

func newReplay(log [][]byte) *replay {
	return &replay{log: log, gather: 1, m: New(), disk: disk{}}
}

func (r *replay) run(t *testing.T, until int) {
	t.Helper()
	for r.applied < until {
		r.step()
		if r.applied-r.written == r.gather || r.applied == until {
			r.write()
		}
		if r.crash != nil && r.crash.IntN(200) == 0 {
			r.load(t)
		}
	}
}

func (r *replay) step() {
	result := r.m.Apply(uint64(r.applied)+1, 1, r.log[r.applied])
	r.digests = append(r.digests[:r.applied], digest(result.Changes))
	r.pending = append(r.pending, result.Changes...)
	r.applied++
}

// write carries out the gathered changes, of which the last to a key counts.
func (r *replay) write() {
	for _, c := range r.pending {
		if c.Value == nil {
			delete(r.disk, string(c.Key))
		} else {
			r.disk[string(c.Key)] = c.Value
		}
	}
	r.pending, r.written = nil, r.applied
}

// load goes on from the disk: what was not written is applied again.
func (r *replay) load(t *testing.T) {
	t.Helper()
	m, err := LoadAt(r.disk.pairs(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	r.m, r.pending, r.applied = m, nil, r.written
}

func (r *replay) compare(t *testing.T, o *replay, from int) {
	t.Helper()
	for i := from; i < len(r.digests); i++ {
		if r.digests[i] != o.digests[i] {
			t.Fatalf("writes of %d: entry %d left other changes", o.gather, i+1)
		}
	}
	if !r.disk.equal(o.disk) || len(r.digests) != len(o.digests) {
		t.Fatalf("writes of %d: the disks differ", o.gather)
	}
}

func digest(changes []wire.Change) uint64 {
	h := fnv.New64a()
	for _, c := range changes {
		size := binary.BigEndian.AppendUint32(nil, uint32(len(c.Key)))
		if c.Value != nil {
			size = binary.BigEndian.AppendUint32(size, uint32(len(c.Value)))
		}
		h.Write(append(size, c.Key...))
		h.Write(c.Value)
	}
	return h.Sum64()
}
