package core

import (
	"bytes"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// abandonedRead is a read whose caller gives up at some point.
type abandonedRead struct{ ended bool }

func (*abandonedRead) Run(Machine)   {}
func (l *abandonedRead) Ended() bool { return l.ended }

type numberedRead int

func (numberedRead) Run(Machine)   {}
func (n numberedRead) Ended() bool { return n < 0 }

const patience = 10

func TestReads_BatchedAndWaitForState(t *testing.T) {
	r := reads{incarnation: wire.ID{1}}
	r.waiting = []Read{numberedRead(1), numberedRead(2)}
	request := r.next(0, patience)
	r.waiting = append(r.waiting, numberedRead(3)) // later than the request
	if again := r.next(1, patience); again != nil {
		t.Fatal("a second request while one is out")
	}
	r.confirmed(request, 7)
	if got := r.applied(6); len(got) != 0 {
		t.Errorf("%v run at 6, and the leader said 7", got)
	}
	if got := r.applied(7); !slices.Equal(got, []Read{numberedRead(1), numberedRead(2)}) {
		t.Errorf("%v run at 7, want 1 and 2", got)
	}
	r.confirmed(r.next(2, patience), 7)
	if got := r.applied(7); !slices.Equal(got, []Read{numberedRead(3)}) {
		t.Errorf("%v run then, want 3", got)
	}
	if r.next(3, patience) != nil || r.len() != 0 {
		t.Error("a request for nothing")
	}
	for n := 4; n <= 6; n++ {
		r.waiting = []Read{numberedRead(n)}
		r.confirmed(r.next(4, patience), uint64(4+n))
	}
	if got := r.applied(9); !slices.Equal(got, []Read{numberedRead(4), numberedRead(5)}) {
		t.Errorf("%v run at 9, want 4 and 5", got)
	}
	if got := r.applied(10); !slices.Equal(got, []Read{numberedRead(6)}) {
		t.Errorf("%v run at 10, want 6", got)
	}
}

// No context is used twice, and an answer to an earlier one is ignored.
func TestReads_LateAnswerIgnored(t *testing.T) {
	const asked = 3 // tick
	for name, lose := range map[string]func(*reads) []byte{
		"no answer for too long": func(r *reads) []byte { return r.next(asked+patience, patience) },
		"another leader":         func(r *reads) []byte { r.retry(); return r.next(1, patience) },
	} {
		t.Run(name, func(t *testing.T) {
			r := reads{incarnation: wire.ID{1}, waiting: []Read{numberedRead(1)}}
			early := r.next(asked, patience)
			if r.next(asked+patience-1, patience) != nil {
				t.Fatal("given up too soon")
			}
			again := lose(&r)
			if again == nil || bytes.Equal(early, again) {
				t.Fatalf("asks with %x after %x", again, early)
			}
			r.confirmed(early, 1)
			if got := r.applied(100); len(got) != 0 {
				t.Errorf("%v run on a late answer", got)
			}
			r.confirmed(again, 2)
			r.confirmed(again, 3) // doubled by the network
			if got := r.applied(100); len(got) != 1 {
				t.Errorf("%v run, want 1", got)
			}
		})
	}
}

func TestReads_ContextsOfMembersDiffer(t *testing.T) {
	ask := func(incarnation wire.ID) (context []byte) {
		r := newRig(t, func(c *Config) { c.Incarnation = incarnation }).follow()
		if err := r.Read(numberedRead(1)); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.settle() {
			if m.GetType() == raftpb.MsgReadIndex {
				context = m.GetEntries()[0].GetData()
			}
		}
		return context
	}
	if a, b := ask(wire.ID{1}), ask(wire.ID{2}); len(a) == 0 || bytes.Equal(a, b) {
		t.Errorf("two members ask with %x and %x", a, b)
	}
}

func TestReads_Limit(t *testing.T) {
	c := &Core{}
	for i := range maxReads {
		if err := c.Read(numberedRead(i)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := c.Read(numberedRead(0)); err != errTooManyReads {
		t.Errorf("one too many: %v", err)
	}
	c.reads.waiting[7] = numberedRead(-1)
	if err := c.Read(numberedRead(0)); err != nil {
		t.Errorf("in the place of an abandoned one: %v", err)
	}
}

// A read whose caller has given up takes no room and does not run.
func TestReads_AbandonedReadDropped(t *testing.T) {
	r := reads{incarnation: wire.ID{1}, waiting: []Read{numberedRead(-1)}}
	if r.next(0, patience) != nil || r.len() != 0 {
		t.Error("a request without a read")
	}
	r.waiting = []Read{numberedRead(-1), numberedRead(2)}
	r.confirmed(r.next(0, patience), 7)
	if got := r.applied(7); !slices.Equal(got, []Read{numberedRead(2)}) {
		t.Errorf("%v run, want 2", got)
	}
	leaves := new(abandonedRead)
	r.waiting = []Read{leaves, numberedRead(3)}
	r.confirmed(r.next(0, patience), 7)
	leaves.ended = true
	if got := r.applied(7); !slices.Equal(got, []Read{numberedRead(3)}) {
		t.Errorf("%v run, want 3", got)
	}
}

// Reads that are refused do not have the loop look at all the others each time, and the room of
// abandoned ones is found nevertheless.
func TestReads_RefusedCostLittle(t *testing.T) {
	c, looked := &Core{}, 0
	for range maxReads {
		if err := c.Read(&countedRead{looked: &looked}); err != nil {
			t.Fatal(err)
		}
	}
	const refused = 10_000
	for range refused {
		if err := c.Read(numberedRead(0)); err != errTooManyReads {
			t.Fatal(err)
		}
	}
	if most := 3*maxReads + refused*pruned; looked > most {
		t.Errorf("%d refused reads look at %d others, want at most %d", refused, looked, most)
	}
	for _, r := range c.reads.waiting {
		r.(*countedRead).ended = true
	}
	for n := 0; c.Read(numberedRead(0)) != nil; n++ {
		if n > maxReads/pruned {
			t.Fatal("the room of abandoned reads is not found")
		}
	}
}

// countedRead counts how often it is looked at.
type countedRead struct {
	looked *int
	ended  bool
}

func (r *countedRead) Run(Machine) {}
func (r *countedRead) Ended() bool { *r.looked++; return r.ended }
