package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// operation is what a caller does again and again; each return is counted.
type operation func(ctx context.Context) error

// workload is one row of the table. Either each caller's operation is repeated for the
// length of a turn, or a whole group is spent on each measurement of a time.
type workload struct {
	name    string
	text    string
	cycles  bool // of locks that no two callers share, so that it has a ceiling
	alone   bool // no peer has anything like it
	both    bool // of locks in both modes, which ZooKeeper does not have
	several bool // of locks that are held together, one by one by the peer; not of ZooKeeper
	callers func(ctx context.Context, g group) ([]operation, error)
	once    func(ctx context.Context, g service) (time.Duration, error)
}

var workloads = []workload{
	{name: "own-1", text: "lock and unlock, one caller", cycles: true, callers: own(1, atLeader)},
	{name: "own-16", text: "lock and unlock, 16 callers with a lock each", cycles: true, callers: own(16, atLeader)},
	{name: "own-64", text: "own-16 with 64 callers", cycles: true, callers: own(64, atLeader)},
	{name: "own-256", text: "own-16 with 256 callers", cycles: true, callers: own(256, atLeader)},
	{name: "own-1024", text: "own-16 with 1,024 callers", cycles: true, callers: own(1024, atLeader)},
	{name: "follower-64", text: "own-64 on a member that does not lead", callers: own(64, atFollower)},
	{name: "follower-256", text: "likewise, 256 callers", callers: own(256, atFollower)},
	{name: "shared-16", text: "lock and unlock, 16 callers of one lock", callers: shared(16, atLeader)},
	{name: "shared-64", text: "likewise, 64 callers", callers: shared(64, atLeader)},
	{name: "spread-16", text: "16 callers of one lock on three members", callers: shared(16, spread)},
	{name: "spread-64", text: "likewise, 64 callers", callers: shared(64, spread)},
	{name: "linger-1", text: "one caller of a lock that lingers; the peer's does not", callers: lingering(1, atLeader)},
	{name: "linger-64", text: "likewise, 64 callers of one lock on one member", callers: lingering(64, atLeader)},
	{name: "linger-spread-16", text: "likewise, 16 callers of one lock on three members", callers: lingering(16, spread)},
	{name: "waiters-1000", text: "1,000 callers of one lock: 999 wait", callers: shared(1000, atLeader)},
	{name: "semaphore-64", text: "acquire and release one of 16 permits, 64 callers of one semaphore; no peer has one", alone: true, callers: permits(64, 16)},
	{name: "rw-64", text: "64 callers of 8 locks, each time a random one, of which one time in ten exclusively; ZooKeeper has no such locks", both: true, callers: bothModes(64, 8, 10, atLeader)},
	{name: "set-64", text: "64 callers take 3 of 64 locks together, random ones each time; etcd one by one, sorted; not ZooKeeper", several: true, callers: severalAtOnce(64, 64, 3, atLeader)},
	{name: "put-64", text: "64 callers put a value of 128 bytes under a key each", callers: puts(64, 128)},
	{name: "get-64", text: "64 callers read a key, linearizably", callers: gets(64)},
	{name: "watch-100", text: "put a key that 100 watchers on three members watch, until all have the change", callers: watches(100)},
	{name: "sessions-10000", text: "own-64 beside 10,000 sessions", callers: besideSessions(10000, own(64, atLeader))},
	{name: "groups-1-64", text: "own-64 in a further group", alone: true, callers: ownInGroups(64, 1)},
	{name: "groups-8-64", text: "own-64 spread over 8 further groups", alone: true, callers: ownInGroups(64, 8)},
	{name: "beside-small", text: "own-64 in a further group, beside 64 writers of values of 16 bytes in another one", alone: true, callers: besideWrites(64, 64, 16)},
	{name: "beside-large", text: "likewise, of 128 KiB", alone: true, callers: besideWrites(64, 64, 128<<10)},
	{name: "failover", text: "the leader stops as in a crash: time to the next grant on another member", once: failover},
}

// place returns the member of the caller with a number.
type place func(leader, caller int) int

func atLeader(leader, _ int) int    { return leader }
func atFollower(leader, _ int) int  { return (leader + 1) % members }
func spread(leader, caller int) int { return (leader + caller) % members }

func own(callers int, at place) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		return cycles(ctx, g, callers, at, func(i int) string { return fmt.Sprint("own-", i) }, false)
	}
}

func shared(callers int, at place) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		return cycles(ctx, g, callers, at, func(int) string { return "shared" }, false)
	}
}

func lingering(callers int, at place) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		return cycles(ctx, g, callers, at, func(int) string { return "lingering" }, true)
	}
}

func cycles(ctx context.Context, g group, callers int, at place, name func(int) string, linger bool) ([]operation, error) {
	leader, err := g.leader(ctx)
	if err != nil {
		return nil, err
	}
	return each(callers, func(i int) (operation, error) {
		l, err := g.lock(ctx, at(leader, i), name(i), linger)
		return cycle(l), err
	})
}

func cycle(l lock) operation {
	return func(ctx context.Context) error {
		if err := l.lock(ctx); err != nil {
			return err
		}
		return l.unlock(context.WithoutCancel(ctx))
	}
}

// each makes the callers' operations concurrently: etcd's sessions cost a commit each.
func each(callers int, make func(i int) (operation, error)) ([]operation, error) {
	ops, errs := newSlice[operation](callers), newSlice[error](callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { ops[i], errs[i] = make(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return ops, nil
}

func newSlice[T any](n int) []T { return make([]T, n) }

// serving makes the callers of a workload that needs more than locks.
func serving(callers func(context.Context, service) ([]operation, error)) func(context.Context, group) ([]operation, error) {
	return func(ctx context.Context, g group) ([]operation, error) {
		s, ok := g.(service)
		if !ok {
			return nil, fmt.Errorf("%T serves locks only", g)
		}
		return callers(ctx, s)
	}
}

func puts(callers, size int) func(context.Context, group) ([]operation, error) {
	return serving(func(ctx context.Context, g service) ([]operation, error) {
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		value := make([]byte, size)
		return each(callers, func(i int) (operation, error) {
			key := fmt.Sprint("put-", i)
			return func(ctx context.Context) error { return g.put(ctx, leader, key, value) }, nil
		})
	})
}

func gets(callers int) func(context.Context, group) ([]operation, error) {
	return serving(func(ctx context.Context, g service) ([]operation, error) {
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		if err := g.put(ctx, leader, "get", make([]byte, 128)); err != nil {
			return nil, err
		}
		return each(callers, func(int) (operation, error) {
			return func(ctx context.Context) error { return g.get(ctx, leader, "get") }, nil
		})
	})
}

func watches(watchers int) func(context.Context, group) ([]operation, error) {
	return serving(func(ctx context.Context, g service) ([]operation, error) {
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		if err := g.put(ctx, leader, "watched", []byte("first")); err != nil {
			return nil, err
		}
		var expected atomic.Pointer[string]
		var missing atomic.Int64
		all := make(chan struct{}, 1)
		for i := range watchers {
			err := g.watch(ctx, spread(leader, i), "watched", func(value string) {
				if e := expected.Load(); e != nil && value == *e && missing.Add(-1) == 0 {
					all <- struct{}{}
				}
			})
			if err != nil {
				return nil, err
			}
		}
		n := 0
		return []operation{func(ctx context.Context) error {
			n++
			value := fmt.Sprint(n)
			missing.Store(int64(watchers))
			expected.Store(&value)
			if err := g.put(ctx, leader, "watched", []byte(value)); err != nil {
				return err
			}
			select {
			case <-all:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}, nil
	})
}

func besideSessions(n int, rest func(context.Context, group) ([]operation, error)) func(context.Context, group) ([]operation, error) {
	return serving(func(ctx context.Context, g service) ([]operation, error) {
		leader, err := g.leader(ctx)
		if err != nil {
			return nil, err
		}
		const openers = 64
		_, err = each(openers, func(i int) (operation, error) {
			return nil, g.sessions(ctx, (leader+i)%members, n/openers)
		})
		if err != nil {
			return nil, err
		}
		return rest(ctx, g)
	})
}

// failover measures from the leader's stop to a grant on another member.
func failover(ctx context.Context, g service) (time.Duration, error) {
	leader, err := g.leader(ctx)
	if err != nil {
		return 0, err
	}
	l, err := g.lock(ctx, (leader+1)%members, "failover", false)
	if err != nil {
		return 0, err
	}
	if err := l.lock(ctx); err != nil {
		return 0, err
	}
	if err := l.unlock(ctx); err != nil {
		return 0, err
	}
	killed := time.Now()
	var stopping sync.WaitGroup
	stopping.Go(func() { g.kill(leader) }) // it takes a while to end; the group does without it at once
	defer stopping.Wait()                  // two closes of one member of etcd at a time panic
	for {
		err := l.lock(ctx)
		if err == nil {
			return time.Since(killed), nil
		}
		if ctx.Err() != nil {
			return 0, err
		}
	}
}
