package grouptest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// readersWriters checks that nothing is granted beside a writer, by a guard that readers and writers show
// their fences, and counts what has occurred.
type readersWriters struct {
	t     *testing.T
	guard conclave.Guard

	inside, together                  atomic.Int64 // readers; whether there were several
	reads, writes, downgrades, losses atomic.Int64
}

// use shows the fence of a hold. A refusal means that a later holder was granted the lock, which one that has not
// lost its hold must not meet.
func (r *readersWriters) use(l *conclave.RWLock, f conclave.Fence) {
	if r.guard.Check("x", f) == nil {
		return
	}
	r.losses.Add(1)
	if now, err := l.Fence(); err == nil && now == f {
		r.t.Errorf("fence %v: a later holder was granted the lock, and this holder does not know that it lost it", f)
	}
}

func (r *readersWriters) read(ctx context.Context, l *conclave.RWLock) {
	f, err := l.RLock(ctx)
	if err != nil {
		return
	}
	r.reads.Add(1)
	if r.inside.Add(1) > 1 {
		r.together.Add(1)
	}
	r.use(l, f)
	_, _ = l.Info(ctx) // takes a while
	r.inside.Add(-1)
	r.use(l, f)
	_ = l.RUnlock(ctx) // fails when the session was lost
}

func (r *readersWriters) write(ctx context.Context, l *conclave.RWLock, downgrade bool) {
	f, err := l.Lock(ctx)
	if err != nil {
		return
	}
	r.writes.Add(1)
	r.use(l, f)
	unlock := l.Unlock
	if downgrade {
		if f, err = l.Downgrade(ctx); err == nil {
			r.downgrades.Add(1)
			unlock = l.RUnlock
			r.use(l, f)
		} else if errors.Is(err, conclave.ErrInvalid) {
			r.t.Error(err)
		}
	}
	_ = unlock(ctx)
}

// Readers, of which some keep the lock near, writers and writers that downgrade, on all nodes and at a
// client, while calls are lost and repeated and leadership moves. No guard refuses a holder that trusts its hold.
func TestRWLock_Stress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	client := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	ctx, stop := context.WithCancel(Bounded(t))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	r := &readersWriters{t: t}
	for i, n := range []Access{g.Nodes[0], g.Nodes[1], g.Nodes[2], client} {
		handle, near := n.RWLock("x"), n.RWLock("x", conclave.Linger(lingering))
		for j := range 4 {
			users.Go(func() {
				for k := range 60 {
					short, cancel := context.WithTimeout(ctx, 20*time.Second)
					if (i+j+k)%5 == 0 { // some leave while they wait
						cancel()
						short, cancel = context.WithTimeout(ctx, time.Millisecond)
					}
					switch {
					case k%8 == 2*j:
						r.write(short, handle, k%16 == 2*j)
					case j%2 == 0:
						r.read(short, handle)
					default:
						r.read(short, near)
					}
					cancel()
				}
			})
		}
	}
	users.Wait()
	stop()
	moving.Wait()
	if r.reads.Load() < 100 || r.writes.Load() < 20 || r.downgrades.Load() < 5 || r.together.Load() == 0 {
		t.Errorf("%d reads, %d of them together, %d writes, %d downgrades: the test tests too little",
			r.reads.Load(), r.together.Load(), r.writes.Load(), r.downgrades.Load())
	}
	if n := r.losses.Load(); n > 0 {
		t.Errorf("%d holders met a later one", n)
	}
	l := g.Nodes[0].RWLock("x")
	_, err := l.Lock(Bounded(t)) // nothing is left of all that
	Must(t, err)
}

// A node that closes gives up what it keeps near at once.
func TestRWLock_LingeringClose(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, LongElections) // which bound a shutdown
	kept := g.Nodes[1].RWLock("x", conclave.Linger(time.Hour))
	before, err := kept.RLock(Bounded(t))
	Must(t, err)
	Must(t, kept.RUnlock(Bounded(t)))
	g.Close(1)
	if after := MustLock(t, g.Nodes[2].FencedLock("x")); after <= before {
		t.Errorf("fence %v after %v", after, before)
	}
}

// A snapshot skips the entries that granted shares to waiting calls, and those that recalled what lingers. The
// member finds the shares in the state, under their numbers, and gives up what it keeps.
func TestRWLock_SnapshotSkipsGrantAndRecall(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork)
	away := (g.Leader() + 1) % 3
	other := g.Nodes[(away+1)%3]
	writer := other.RWLock("x")
	written, err := writer.Lock(Bounded(t))
	Must(t, err)
	kept := g.Nodes[away].RWLock("kept", conclave.Linger(time.Hour))
	_, err = kept.RLock(Bounded(t))
	Must(t, err)
	Must(t, kept.RUnlock(Bounded(t)))

	reader := g.Nodes[away].RWLock("x")
	granted := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := reader.RLock(Bounded(t))
			granted <- err
		}()
	}
	AwaitWaiters(t, other.FencedLock("x"), 2)

	g.Disconnect(away)
	Must(t, writer.Unlock(Bounded(t))) // grants them to the disconnected member
	_, err = other.RWLock("kept").TryLock(Bounded(t))
	WantError(t, err, conclave.ErrLocked)
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	for range 2 {
		Must(t, <-granted)
	}
	g.WantInstalled(away, 1)
	if f, err := reader.Fence(); err != nil || f <= written || reader.Holds() != 2 {
		t.Errorf("fence %v, %v with %d holds", f, err, reader.Holds())
	}
	Must(t, reader.RUnlock(Bounded(t)))
	Must(t, reader.RUnlock(Bounded(t)))
	for _, name := range []string{"x", "kept"} {
		_, err = other.RWLock(name).Lock(Bounded(t))
		Must(t, err)
	}
}
