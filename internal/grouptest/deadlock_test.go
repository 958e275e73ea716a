package grouptest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// task is a session that stands for one task, with a lock that it holds.
type task struct {
	session *conclave.Session
	held    *conclave.RWLock
	shared  bool
}

// newTask opens a session and locks the name under it.
func newTask(t *testing.T, n Access, name string, shared bool) *task {
	t.Helper()
	s := MustSession(t, n, &conclave.SessionConfig{Name: "task of " + name, TTL: time.Hour})
	l := s.RWLock(name, conclave.RefuseDeadlock(), conclave.WithLabel("holds "+name))
	lock := l.Lock
	if shared {
		lock = l.RLock
	}
	_, err := lock(Bounded(t))
	Must(t, err)
	return &task{s, l, shared}
}

// release unlocks what the task holds.
func (k *task) release(t *testing.T) {
	t.Helper()
	unlock := k.held.Unlock
	if k.shared {
		unlock = k.held.RUnlock
	}
	Must(t, unlock(Bounded(t)))
}

// requested is what came of a request of a task.
type requested struct {
	by   int
	lock *conclave.RWLock
	err  error
}

// requestAll has each task lock the name that the next one holds, at the same time.
func requestAll(t *testing.T, tasks []*task, names []string, shared bool) <-chan requested {
	t.Helper()
	results := make(chan requested, len(tasks))
	for i, k := range tasks {
		l := k.session.RWLock(names[(i+1)%len(names)], conclave.RefuseDeadlock(), conclave.WithLabel("wants"))
		lock := l.Lock
		if shared {
			lock = l.RLock
		}
		go func() {
			_, err := lock(Bounded(t))
			results <- requested{i, l, err}
		}()
	}
	return results
}

// wantCycle checks the error of a task that is refused: the cycle begins with its own wait and names all tasks.
func wantCycle(t *testing.T, err error, by int, tasks []*task, names []string) {
	t.Helper()
	WantError(t, err, conclave.ErrDeadlock)
	var d *conclave.DeadlockError
	if !errors.As(err, &d) || d.Sessions != len(tasks) || len(d.Cycle) != len(tasks) {
		t.Fatalf("the error is %v", err)
	}
	for i, step := range d.Cycle {
		waiter, holder := tasks[(by+i)%len(tasks)], tasks[(by+i+1)%len(tasks)]
		name := names[(by+i+1)%len(names)]
		if step.Lock != name || step.Election || step.Waiter.Session != waiter.session.ID() || step.Holder.Session != holder.session.ID() ||
			step.Waiter.Label != "wants" || step.Holder.Label != "holds "+name || step.Holder.SessionName != "task of "+name || step.Holder.Shared != holder.shared {
			t.Errorf("step %d is %+v", i, step)
		}
	}
}

// Sessions on all nodes and at a client lock in opposite orders, at the same time: exactly one is refused, and when it has released its
// lock the others get theirs, one after the other.
func TestRefuseDeadlock_OneIsRefused(t *testing.T) {
	t.Parallel()
	g := Start(t, 3)
	client := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	access := []Access{g.Nodes[0], client, g.Nodes[1], g.Nodes[2]}
	for name, row := range map[string]struct {
		names              []string
		held, wantedShared bool
	}{
		"two":                     {names: []string{"a", "b"}},
		"three":                   {names: []string{"c", "d", "e"}},
		"four":                    {names: []string{"f", "g", "h", "i"}},
		"two that hold shared":    {names: []string{"j", "k"}, held: true},
		"three that want shared":  {names: []string{"l", "m", "n"}, wantedShared: true},
		"one of several that may": {names: []string{"o", "p"}, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tasks []*task
			for i, lock := range row.names {
				tasks = append(tasks, newTask(t, access[i], lock, row.held))
			}
			if name == "one of several that may" { // others that hold the lock too, and wait for nothing
				other := newTask(t, access[0], "o", true)
				defer other.release(t)
			}
			results := requestAll(t, tasks, row.names, row.wantedShared)
			first := <-results
			wantCycle(t, first.err, first.by, tasks, row.names)
			if name == "one of several that may" {
				return // the other waits for those that share the lock
			}
			tasks[first.by].release(t)
			for range len(tasks) - 1 {
				r := <-results
				Must(t, r.err)
				unlock := r.lock.Unlock
				if row.wantedShared {
					unlock = r.lock.RUnlock
				}
				Must(t, unlock(Bounded(t)))
				tasks[r.by].release(t)
			}
		})
	}
}

// Tasks on all nodes and at a client lock some of a few names in any order and mode, while leadership moves. With the option none of them
// waits for ever: one that is refused releases what it holds and begins again.
func TestRefuseDeadlock_Stress(t *testing.T) {
	t.Parallel()
	g := Start(t, 3, FaultyNetwork)
	client := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	ctx, stop := context.WithCancel(Bounded(t))
	var moving, users sync.WaitGroup
	moving.Go(func() { moveLeadership(ctx, g, 200*time.Millisecond) })
	var done, refused atomic.Int64
	tasks := often(15)
	for i, n := range []Access{g.Nodes[0], g.Nodes[1], g.Nodes[2], client} {
		for j := range 3 {
			s := MustSession(t, n, &conclave.SessionConfig{TTL: time.Hour})
			random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			users.Go(func() {
				for k := 0; k < tasks; {
					switch err := lockSome(ctx, s, random); {
					case err == nil:
						done.Add(1)
						k++
					case errors.Is(err, conclave.ErrDeadlock):
						refused.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
	}
	users.Wait()
	stop()
	moving.Wait()
	if refused.Load() == 0 || done.Load() < int64(4*3*tasks) {
		t.Errorf("%d tasks were done, %d refused", done.Load(), refused.Load())
	}
}

// lockSome locks three of four names, and releases them. After a refusal what it holds already is released.
func lockSome(ctx context.Context, s *conclave.Session, random *rand.Rand) (err error) {
	for _, i := range random.Perm(4)[:3] {
		l := s.RWLock(string(rune('a'+i)), conclave.RefuseDeadlock())
		lock, unlock := l.Lock, l.Unlock
		if random.IntN(2) == 0 {
			lock, unlock = l.RLock, l.RUnlock
		}
		if _, err := lock(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock(ctx)) }()
	}
	return nil
}

// What the option cannot be combined with is refused, and a TryLock does not wait.
func TestRefuseDeadlock_Options(t *testing.T) {
	t.Parallel()
	g := Start(t, 1)
	ctx := Bounded(t)
	for _, opts := range [][]conclave.LockOption{
		{conclave.RefuseDeadlock(), conclave.Linger(time.Second)}, {conclave.Linger(time.Second), conclave.RefuseDeadlock()},
	} {
		_, err := g.Nodes[0].FencedLock("x", opts...).TryLock(ctx)
		WantError(t, err, conclave.ErrInvalid)
		_, err = g.Nodes[0].RWLock("x", opts...).RLock(ctx)
		WantError(t, err, conclave.ErrInvalid)
	}
	_, err := g.Nodes[0].FencedLock("x", conclave.RefuseDeadlock(), conclave.Linger(0)).Lock(ctx)
	Must(t, err)
	a, b := newTask(t, g.Nodes[0], "a", false), newTask(t, g.Nodes[0], "b", false)
	waits := a.session.FencedLock("b", conclave.RefuseDeadlock())
	locked := make(chan error, 1)
	go func() {
		_, err := waits.Lock(ctx)
		locked <- err
	}()
	AwaitWaiters(t, waits, 1)
	crossing := b.session.FencedLock("a", conclave.RefuseDeadlock())
	_, err = crossing.TryLock(ctx)
	WantError(t, err, conclave.ErrLocked)
	_, err = crossing.Lock(ctx)
	WantError(t, err, conclave.ErrDeadlock)
	if crossing.Holds() != 0 {
		t.Errorf("the handle holds the lock %d times", crossing.Holds())
	}
	b.release(t)
	Must(t, <-locked)
}
