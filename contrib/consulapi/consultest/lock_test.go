package consultest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func newLock(t testing.TB, c *api.Client, o api.LockOptions) *api.Lock {
	t.Helper()
	l, err := c.LockOpts(&o)
	must(t, err)
	return l
}

// locked acquires a lock, which must be possible.
func locked(t testing.TB, l *api.Lock) <-chan struct{} {
	t.Helper()
	stop := make(chan struct{})
	watchdog := time.AfterFunc(patience, func() { close(stop) })
	defer watchdog.Stop()
	lost, err := l.Lock(stop)
	must(t, err)
	if lost == nil {
		t.Fatalf("the lock was not acquired within %v", patience)
	}
	return lost
}

// Contenders at three members increment a number without compare-and-swap: each increment lost would
// be a second holder.
func TestLock_MutualExclusion(t *testing.T) {
	const rounds = 3
	a := start(t, 3)
	var inside atomic.Int32
	var contenders sync.WaitGroup
	for _, c := range a.clients() {
		contenders.Go(func() {
			for range rounds {
				l := newLock(t, c, api.LockOptions{Key: "jobs/nightly", LockWaitTime: time.Second})
				lost, err := l.Lock(nil)
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders", n)
				}
				increment(t, c, "jobs/runs")
				if !open(lost) {
					t.Error("lost while held")
				}
				inside.Add(-1)
				if err := l.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	contenders.Wait()
	if got := string(get(t, a.client(0), "jobs/runs").Value); got != strconv.Itoa(3*rounds) {
		t.Errorf("%s increments, want %d", got, 3*rounds)
	}
}

// increment reads and writes a key in two calls.
func increment(t testing.TB, c *api.Client, key string) {
	pair, _, err := c.KV().Get(key, nil)
	if err != nil {
		t.Errorf("get: %v", err)
		return
	}
	n := 0
	if pair != nil {
		if n, err = strconv.Atoi(string(pair.Value)); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte(strconv.Itoa(n + 1))}, nil); err != nil {
		t.Errorf("put: %v", err)
	}
}

func TestLock_OptionsOfTheSession(t *testing.T) {
	a := start(t, 1)
	c := a.client(0)
	for _, tc := range []struct {
		name string
		o    api.LockOptions
		want api.SessionEntry
	}{
		{"defaults", api.LockOptions{}, api.SessionEntry{
			Name: api.DefaultLockSessionName, TTL: api.DefaultLockSessionTTL, LockDelay: 15 * time.Second, Behavior: api.SessionBehaviorRelease,
		}},
		{"each", api.LockOptions{SessionName: "web", SessionTTL: "20s", LockDelay: 2 * time.Second}, api.SessionEntry{
			Name: "web", TTL: "20s", LockDelay: 2 * time.Second, Behavior: api.SessionBehaviorRelease,
		}},
		{"an entry", api.LockOptions{
			SessionOpts: &api.SessionEntry{Name: "own", TTL: "30s", LockDelay: time.Millisecond, Behavior: api.SessionBehaviorDelete},
		}, api.SessionEntry{Name: "own", TTL: "30s", LockDelay: time.Millisecond, Behavior: api.SessionBehaviorDelete}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Key, tc.o.Value = "options/"+tc.name, []byte("holder of "+tc.name)
			l := newLock(t, c, tc.o)
			locked(t, l)
			pair := get(t, c, tc.o.Key)
			if string(pair.Value) != string(tc.o.Value) || pair.Flags != api.LockFlagValue || pair.LockIndex != 1 {
				t.Errorf("key %+v", pair)
			}
			e, _, err := c.Session().Info(pair.Session, nil)
			must(t, err)
			if e == nil || e.Name != tc.want.Name || e.TTL != tc.want.TTL || e.LockDelay != tc.want.LockDelay || e.Behavior != tc.want.Behavior {
				t.Errorf("session %+v, want %+v", e, tc.want)
			}
			must(t, l.Unlock())
			ended(t, c, pair.Session)
		})
	}
}

// ended waits for the end of a session that a client destroys in the background. Blocking on a session is
// not supported, so the key of a probe shows it: a session that has ended acquires nothing.
func ended(t testing.TB, c *api.Client, id string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		e, _, err := c.Session().Info(id, nil)
		must(t, err)
		if e == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond): // no event shows the end of a session that holds nothing
		case <-deadline.C:
			t.Fatalf("session %s has not ended", id)
		}
	}
}

func TestLock_OwnSession(t *testing.T) {
	a := start(t, 3)
	first, second := a.client(0), a.client(1)
	id := session(t, first, &api.SessionEntry{LockDelay: time.Millisecond})
	l := newLock(t, first, api.LockOptions{Key: "own", Session: id})
	locked(t, l)

	// The same session through another member holds the lock already.
	again := newLock(t, second, api.LockOptions{Key: "own", Session: id})
	locked(t, again)
	if pair := get(t, second, "own"); pair.Session != id || pair.LockIndex != 1 {
		t.Errorf("key %+v", pair)
	}
	must(t, l.Unlock())
	if e, _, err := second.Session().Info(id, nil); err != nil || e == nil {
		t.Errorf("Unlock ended a session that it had not created: %+v, %v", e, err)
	}
}

func TestLock_TryOnce(t *testing.T) {
	a := start(t, 2)
	holder := newLock(t, a.client(0), api.LockOptions{Key: "once"})
	locked(t, holder)
	const wait = 300 * time.Millisecond
	l := newLock(t, a.client(1), api.LockOptions{Key: "once", LockTryOnce: true, LockWaitTime: wait})
	began := time.Now()
	lost, err := l.Lock(nil)
	if lost != nil || err != nil {
		t.Errorf("Lock of a held lock: %v, %v", lost, err)
	}
	if waited := time.Since(began); waited < wait {
		t.Errorf("gave up after %v, want at least %v", waited, wait)
	}
	must(t, holder.Unlock())
	locked(t, l)
	must(t, l.Unlock())
}

func TestLock_Stopped(t *testing.T) {
	a := start(t, 2)
	holder := newLock(t, a.client(0), api.LockOptions{Key: "stopped"})
	locked(t, holder)
	stop := make(chan struct{})
	close(stop)
	waiter := newLock(t, a.client(1), api.LockOptions{Key: "stopped"})
	if lost, err := waiter.Lock(stop); lost != nil || err != nil {
		t.Errorf("a stopped Lock: %v, %v", lost, err)
	}
	must(t, holder.Unlock())
}

func TestLock_Lost(t *testing.T) {
	a := start(t, 3)
	for _, tc := range []struct {
		name string
		lose func(c *api.Client, key, session string) error
	}{
		{"session destroyed", func(c *api.Client, _, session string) error {
			_, err := c.Session().Destroy(session, nil)
			return err
		}},
		{"key deleted", func(c *api.Client, key, _ string) error {
			_, err := c.KV().Delete(key, nil)
			return err
		}},
		{"tree deleted", func(c *api.Client, key, _ string) error {
			_, err := c.KV().DeleteTree(key, nil)
			return err
		}},
		{"released by another client", func(c *api.Client, key, session string) error {
			_, _, err := c.KV().Release(&api.KVPair{Key: key, Session: session, Flags: api.LockFlagValue}, nil)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			key := "lost/" + tc.name
			l := newLock(t, a.client(0), api.LockOptions{Key: key, LockDelay: time.Millisecond})
			lost := locked(t, l)
			pair := get(t, a.client(1), key)
			pair.Value = []byte("written by any client: locks are advisory")
			if _, err := a.client(1).KV().Put(pair, nil); err != nil {
				t.Error(err)
			}
			if kept := get(t, a.client(1), key); kept.Session != pair.Session || !open(lost) {
				t.Errorf("a put took the lock: %+v", kept)
			}
			must(t, tc.lose(a.client(2), key, pair.Session))
			await(t, "the channel of a lost lock closes", lost)
			must(t, l.Unlock())
		})
	}
}

// The delay begins when the session ends, so after the call that ends it began.
func TestLock_LockDelay(t *testing.T) {
	const delay = 5 * time.Second // and not over before the first refusal
	a := start(t, 2)
	id := session(t, a.client(0), &api.SessionEntry{LockDelay: delay})
	locked(t, newLock(t, a.client(0), api.LockOptions{Key: "delayed", Session: id}))
	next := &api.KVPair{Key: "delayed", Session: session(t, a.client(1), &api.SessionEntry{}), Flags: api.LockFlagValue}
	began := time.Now()
	_, err := a.client(0).Session().Destroy(id, nil)
	must(t, err)

	refused := 0
	for {
		ok, _, err := a.client(1).KV().Acquire(next, nil)
		must(t, err)
		if ok {
			break
		}
		if refused++; time.Since(began) > patience {
			t.Fatal("the lock-delay does not end")
		}
		<-time.After(20 * time.Millisecond) // the delay is what is tested, and its end is no event
	}
	if passed := time.Since(began); passed < delay || refused == 0 {
		t.Errorf("acquired after %v and %d refusals, want at least %v", passed, refused, delay)
	}
}

// Consul's client waits by itself while a lock-delay is pending.
func TestLock_WaitsForLockDelay(t *testing.T) {
	a := start(t, 2)
	id := session(t, a.client(0), &api.SessionEntry{LockDelay: 500 * time.Millisecond})
	lost := locked(t, newLock(t, a.client(0), api.LockOptions{Key: "waits", Session: id}))
	acquired := make(chan struct{})
	next := newLock(t, a.client(1), api.LockOptions{Key: "waits"})
	go func() {
		defer close(acquired)
		if lost, err := next.Lock(nil); lost == nil || err != nil {
			t.Errorf("Lock: %v, %v", lost, err)
		}
	}()
	_, err := a.client(0).Session().Destroy(id, nil)
	must(t, err)
	await(t, "the channel of a lost lock closes", lost)
	await(t, "the next owner acquires the lock", acquired)
	must(t, next.Unlock())
}

func TestLock_Destroy(t *testing.T) {
	a := start(t, 2)
	l, other := newLock(t, a.client(0), api.LockOptions{Key: "d"}), newLock(t, a.client(1), api.LockOptions{Key: "d"})
	locked(t, l)
	if _, err := l.Lock(nil); !errors.Is(err, api.ErrLockHeld) {
		t.Errorf("Lock of a held lock: %v", err)
	}
	if err := l.Destroy(); !errors.Is(err, api.ErrLockHeld) {
		t.Errorf("Destroy by the holder: %v", err)
	}
	if err := other.Destroy(); !errors.Is(err, api.ErrLockInUse) {
		t.Errorf("Destroy of a held lock: %v", err)
	}
	must(t, l.Unlock())
	if err := l.Unlock(); !errors.Is(err, api.ErrLockNotHeld) {
		t.Errorf("second Unlock: %v", err)
	}
	must(t, other.Destroy())
	if pair, _, err := a.client(0).KV().Get("d", nil); pair != nil || err != nil {
		t.Errorf("after Destroy: %+v, %v", pair, err)
	}
}
