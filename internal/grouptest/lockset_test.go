package grouptest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// setUsers take sets of some locks, and single ones of these. A guard that is shown the fences of each hold, when it begins and
// before it ends, refuses one that a later holder has met.
type setUsers struct {
	t     *testing.T
	names []string
	guard conclave.Guard

	sets, shared, singles, left, losses atomic.Int64
}

// use shows the fence of a name that a caller trusts.
func (u *setUsers) use(name string, fence func() (conclave.Fence, error)) {
	f, err := fence()
	if err != nil || u.guard.Check(name, f) == nil {
		return
	}
	u.losses.Add(1)
	if now, err := fence(); err == nil && now == f {
		u.t.Errorf("fence %v of %s: a later holder was granted the lock, and this holder does not know that it lost it", f, name)
	}
}

// takeSet takes up to four locks, of which some shared.
func (u *setUsers) takeSet(ctx context.Context, n Access, rng *rand.Rand) {
	chosen := rng.Perm(len(u.names))[:1+rng.IntN(4)]
	var exclusive, shared []string
	for _, i := range chosen {
		if rng.IntN(3) == 0 {
			shared = append(shared, u.names[i])
		} else {
			exclusive = append(exclusive, u.names[i])
		}
	}
	set := n.LockSet(exclusive, conclave.Shared(shared...))
	if _, err := set.Lock(ctx); err != nil {
		u.left.Add(1)
		return
	}
	u.sets.Add(1)
	u.shared.Add(int64(len(shared)))
	for range 2 {
		for _, i := range chosen {
			u.use(u.names[i], func() (conclave.Fence, error) { return set.FenceOf(u.names[i]) })
		}
		_, _ = n.FencedLock(u.names[chosen[0]]).Info(ctx) // takes a while
	}
	_ = set.Unlock(ctx) // fails when the session was lost
}

func (u *setUsers) takeOne(ctx context.Context, n Access, rng *rand.Rand) {
	name := u.names[rng.IntN(len(u.names))]
	l := n.RWLock(name)
	lock, unlock := l.Lock, l.Unlock
	if rng.IntN(2) == 0 {
		lock, unlock = l.RLock, l.RUnlock
	}
	if _, err := lock(ctx); err != nil {
		u.left.Add(1)
		return
	}
	u.singles.Add(1)
	u.use(name, l.Fence)
	_ = unlock(ctx)
}

// Sets and single locks of the same names, on all nodes and at a client, while calls are lost and repeated and leadership moves, and
// some leave while they wait. None meets another one, none waits for ever, and nothing is left.
func TestLockSet_Stress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	client := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	ctx, stop := context.WithCancel(Bounded(t))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	u := &setUsers{t: t}
	for i := range 6 {
		u.names = append(u.names, fmt.Sprint("n", i))
	}
	for i, n := range []Access{g.Nodes[0], g.Nodes[1], g.Nodes[2], client} {
		for j := range 4 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			users.Go(func() {
				for range 40 {
					short, cancel := context.WithTimeout(ctx, 20*time.Second)
					if rng.IntN(5) == 0 {
						cancel()
						short, cancel = context.WithTimeout(ctx, time.Millisecond)
					}
					if rng.IntN(3) > 0 {
						u.takeSet(short, n, rng)
					} else {
						u.takeOne(short, n, rng)
					}
					cancel()
				}
			})
		}
	}
	users.Wait()
	stop()
	moving.Wait()
	if u.sets.Load() < 100 || u.singles.Load() < 40 || u.shared.Load() < 30 || u.left.Load() < 20 {
		t.Errorf("%d sets with %d shared names, %d single locks, %d left: the test tests too little",
			u.sets.Load(), u.shared.Load(), u.singles.Load(), u.left.Load())
	}
	if n := u.losses.Load(); n > 0 {
		t.Errorf("%d holders met a later one", n)
	}
	_, err := g.Nodes[0].LockSet(u.names).Lock(Bounded(t)) // nothing is left of all that
	Must(t, err)
}

// A snapshot skips the entry that granted a set to a waiting call. The member finds the set in the state, with the fence of each name.
func TestLockSet_SnapshotSkipsGrant(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, ShortLog, MemoryNetwork)
	away := (g.Leader() + 1) % 3
	other := g.Nodes[(away+1)%3]
	held, reader := other.FencedLock("x"), other.RWLock("r")
	before := MustLock(t, held)
	phase, err := reader.RLock(Bounded(t))
	Must(t, err)
	set := g.Nodes[away].LockSet([]string{"x", "y"}, conclave.Shared("r"))
	granted := make(chan error, 1)
	go func() {
		_, err := set.Lock(Bounded(t))
		granted <- err
	}()
	AwaitWaiters(t, held, 1)
	g.Disconnect(away)
	MustUnlock(t, held) // grants the set to the disconnected member
	Busy(t, other, 300)
	g.Net.Rejoin(away)
	Must(t, <-granted)
	g.WantInstalled(away, 1)
	fence, err := set.FenceOf("y")
	if shared, err := set.FenceOf("r"); err != nil || shared != phase {
		t.Errorf("the shared name has fence %v, %v; want %v", shared, err, phase)
	}
	if f, fault := set.Fence(); err != nil || fault != nil || f != fence || f <= before {
		t.Errorf("fences %v, %v; %v, %v", fence, err, f, fault)
	}
	Must(t, set.Unlock(Bounded(t)))
	MustLock(t, other.FencedLock("y"))
}
