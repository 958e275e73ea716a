package consultest

import (
	"errors"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func newSemaphore(t testing.TB, c *api.Client, o api.SemaphoreOptions) *api.Semaphore {
	t.Helper()
	s, err := c.SemaphoreOpts(&o)
	must(t, err)
	return s
}

// permitted acquires a slot, which must be possible.
func permitted(t testing.TB, s *api.Semaphore) <-chan struct{} {
	t.Helper()
	stop := make(chan struct{})
	watchdog := time.AfterFunc(patience, func() { close(stop) })
	defer watchdog.Stop()
	lost, err := s.Acquire(stop)
	must(t, err)
	if lost == nil {
		t.Fatalf("no slot was acquired within %v", patience)
	}
	return lost
}

func TestSemaphore_Limit(t *testing.T) {
	const limit, rounds = 2, 3
	a := start(t, 3)
	var inside, most atomic.Int32
	var workers sync.WaitGroup
	for i := range 5 {
		c := a.client(i % 3)
		workers.Go(func() {
			for range rounds {
				s := newSemaphore(t, c, api.SemaphoreOptions{Prefix: "pool", Limit: limit, SemaphoreWaitTime: time.Second})
				lost, err := s.Acquire(nil)
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if !open(lost) {
					t.Error("lost while held")
				}
				if _, _, err := c.KV().Get("pool/.lock", nil); err != nil {
					t.Error(err)
				}
				inside.Add(-1)
				if err := s.Release(); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	workers.Wait()
	if n := most.Load(); n > limit {
		t.Errorf("%d holders at a time, the limit is %d", n, limit)
	}
	pairs, _, err := a.client(0).KV().List("pool/", nil)
	must(t, err)
	if len(pairs) != 1 || pairs[0].Key != "pool/.lock" || string(pairs[0].Value) != `{"Limit":2,"Holders":{}}` {
		t.Errorf("left over: %+v", pairs)
	}
}

// All slots can be held at the same time, and no more.
func TestSemaphore_Full(t *testing.T) {
	a := start(t, 3)
	var held []*api.Semaphore
	for i := range 2 {
		s := newSemaphore(t, a.client(i), api.SemaphoreOptions{Prefix: "full", Limit: 2})
		permitted(t, s)
		held = append(held, s)
	}
	const wait = 300 * time.Millisecond
	third := newSemaphore(t, a.client(2), api.SemaphoreOptions{Prefix: "full", Limit: 2, SemaphoreTryOnce: true, SemaphoreWaitTime: wait})
	began := time.Now()
	if lost, err := third.Acquire(nil); lost != nil || err != nil {
		t.Errorf("Acquire of a full semaphore: %v, %v", lost, err)
	}
	if waited := time.Since(began); waited < wait {
		t.Errorf("gave up after %v, want at least %v", waited, wait)
	}
	must(t, held[0].Release())
	permitted(t, third)
	must(t, third.Release())
	must(t, held[1].Release())
}

func TestSemaphore_Options(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	s := newSemaphore(t, c, api.SemaphoreOptions{
		Prefix: "opt", Limit: 1, Value: []byte("worker 7"), SessionName: "pool", SessionTTL: "20s",
		MonitorRetries: 2, MonitorRetryTime: time.Second, SemaphoreWaitTime: time.Second,
	})
	permitted(t, s)
	pairs, _, err := c.KV().List("opt/", nil)
	must(t, err)
	if len(pairs) != 2 || pairs[0].Key != "opt/.lock" {
		t.Fatalf("keys %+v", pairs)
	}
	contender := pairs[1]
	if string(contender.Value) != "worker 7" || contender.Key != path.Join("opt", contender.Session) || contender.Flags != api.SemaphoreFlagValue {
		t.Errorf("contender %+v", contender)
	}
	e, _, err := c.Session().Info(contender.Session, nil)
	must(t, err)
	if e == nil || e.Name != "pool" || e.TTL != "20s" || e.Behavior != api.SessionBehaviorDelete {
		t.Errorf("session %+v", e)
	}
	must(t, s.Release())
	ended(t, c, contender.Session)
}

func TestSemaphore_OwnSession(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	id := session(t, c, &api.SessionEntry{Behavior: api.SessionBehaviorDelete})
	s := newSemaphore(t, c, api.SemaphoreOptions{Prefix: "own", Limit: 1, Session: id})
	permitted(t, s)
	if pair := get(t, c, "own/"+id); pair.Session != id {
		t.Errorf("contender %+v", pair)
	}
	must(t, s.Release())
	if e, _, err := c.Session().Info(id, nil); err != nil || e == nil {
		t.Errorf("Release ended a session that it had not created: %+v, %v", e, err)
	}
}

// A holder's end frees its slot: its contender entry goes with its session, and a waiter prunes it.
func TestSemaphore_HolderEnds(t *testing.T) {
	a := start(t, 3)
	id := session(t, a.client(0), &api.SessionEntry{Behavior: api.SessionBehaviorDelete, LockDelay: time.Millisecond})
	lost := permitted(t, newSemaphore(t, a.client(0), api.SemaphoreOptions{Prefix: "ends", Limit: 1, Session: id}))
	next := newSemaphore(t, a.client(1), api.SemaphoreOptions{Prefix: "ends", Limit: 1})
	acquired := make(chan struct{})
	go func() {
		defer close(acquired)
		if lost, err := next.Acquire(nil); lost == nil || err != nil {
			t.Errorf("Acquire: %v, %v", lost, err)
		}
	}()
	_, err := a.client(2).Session().Destroy(id, nil)
	must(t, err)
	await(t, "the channel of a lost slot closes", lost)
	await(t, "a waiter acquires the slot", acquired)
	must(t, next.Release())
}

func TestSemaphore_Lost(t *testing.T) {
	a := start(t, 2)
	for _, tc := range []struct {
		name string
		lose func(c *api.Client, prefix string) error
	}{
		{"lock key deleted", func(c *api.Client, prefix string) error {
			_, err := c.KV().Delete(prefix+"/.lock", nil)
			return err
		}},
		{"removed from the holders", func(c *api.Client, prefix string) error {
			_, err := c.KV().Put(&api.KVPair{Key: prefix + "/.lock", Value: []byte(`{"Limit":1,"Holders":{}}`), Flags: api.SemaphoreFlagValue}, nil)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			prefix := "lost/" + tc.name
			s := newSemaphore(t, a.client(0), api.SemaphoreOptions{Prefix: prefix, Limit: 1})
			lost := permitted(t, s)
			must(t, tc.lose(a.client(1), prefix))
			await(t, "the channel of a lost slot closes", lost)
			must(t, s.Release())
		})
	}
}

func TestSemaphore_Conflicts(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	s := newSemaphore(t, c, api.SemaphoreOptions{Prefix: "c", Limit: 2})
	permitted(t, s)
	if _, err := s.Acquire(nil); !errors.Is(err, api.ErrSemaphoreHeld) {
		t.Errorf("second Acquire: %v", err)
	}
	if _, err := newSemaphore(t, c, api.SemaphoreOptions{Prefix: "c", Limit: 3}).Acquire(nil); err == nil || !strings.Contains(err.Error(), "limit conflict") {
		t.Errorf("another limit: %v", err)
	}
	if _, err := newLock(t, c, api.LockOptions{Key: "c/.lock"}).Lock(nil); !errors.Is(err, api.ErrLockConflict) {
		t.Errorf("a lock of the semaphore's key: %v", err)
	}
	if err := newSemaphore(t, c, api.SemaphoreOptions{Prefix: "c", Limit: 2}).Destroy(); !errors.Is(err, api.ErrSemaphoreInUse) {
		t.Errorf("Destroy of a semaphore in use: %v", err)
	}
	must(t, s.Release())
	if err := s.Release(); !errors.Is(err, api.ErrSemaphoreNotHeld) {
		t.Errorf("second Release: %v", err)
	}
	must(t, s.Destroy())
	if pair, _, err := c.KV().Get("c/.lock", nil); pair != nil || err != nil {
		t.Errorf("after Destroy: %+v, %v", pair, err)
	}
	locked(t, newLock(t, c, api.LockOptions{Key: "l/.lock"}))
	if _, err := newSemaphore(t, c, api.SemaphoreOptions{Prefix: "l", Limit: 1}).Acquire(nil); !errors.Is(err, api.ErrSemaphoreConflict) {
		t.Errorf("a semaphore of a lock's key: %v", err)
	}
}
