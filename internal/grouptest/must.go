package grouptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// The functions of this file do what their names say and fail the test when that
// does not succeed in time. The listings of Node are called here only.

// patience is how long the tests wait for what has to come. Only what hangs takes so long, however busy the machine is.
const patience = 5 * time.Minute

// Bounded returns a context of the test's for what has to end.
func Bounded(t testing.TB) context.Context { return Within(t, patience) }

// Within returns a context of the test's that ends after d.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Expired returns a context that has ended.
func Expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// Collect returns all items of a listing.
func Collect[T any](listing iter.Seq2[T, error]) ([]T, error) {
	var list []T
	for item, err := range listing {
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

// Must fails the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WantError checks that err is an *Error that wraps want.
func WantError(t testing.TB, err, want error) {
	t.Helper()
	var e *conclave.Error
	if !errors.Is(err, want) || !errors.As(err, &e) {
		t.Fatalf("error is %v; want an *Error that wraps %q", err, want)
	}
}

// MustLock locks and returns the fence.
func MustLock(t testing.TB, l *conclave.FencedLock) conclave.Fence {
	t.Helper()
	f, err := l.Lock(Bounded(t))
	Must(t, err)
	return f
}

// MustUnlock unlocks.
func MustUnlock(t testing.TB, l *conclave.FencedLock) {
	t.Helper()
	Must(t, l.Unlock(Bounded(t)))
}

// AwaitWaiters blocks until so many wait for the lock.
func AwaitWaiters(t testing.TB, l *conclave.FencedLock, n int) {
	t.Helper()
	ctx := Bounded(t)
	for {
		info, err := l.Info(ctx)
		Must(t, err)
		if info.Waiters == n {
			return
		}
		Pass(time.Millisecond)
	}
}

// AwaitJob waits until the job is as wanted.
func AwaitJob(t testing.TB, j *conclave.Job, wanted func(conclave.JobInfo) bool) {
	t.Helper()
	ctx := Bounded(t)
	for {
		info, err := j.Info(ctx)
		Must(t, err)
		if wanted(info) {
			return
		}
		Pass(time.Millisecond)
	}
}

// Waiting is a Lock that waits.
type Waiting struct {
	Cancel context.CancelFunc
	Err    chan error // gets what Lock returns
}

// StartLock starts a Lock and returns when the group has it in the queue, where
// nothing else waits.
func StartLock(t testing.TB, l *conclave.FencedLock) *Waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(Bounded(t))
	w := &Waiting{cancel, make(chan error, 1)}
	go func() {
		_, err := l.Lock(ctx)
		w.Err <- err
	}()
	AwaitWaiters(t, l, 1)
	return w
}

// Lasting is the configuration of a session that only a close ends.
func Lasting() *conclave.SessionConfig {
	return &conclave.SessionConfig{TTL: conclave.NoTTL, LockDelay: conclave.NoLockDelay, NoChecks: true}
}

// MustSession opens a session.
func MustSession(t testing.TB, n Access, cfg *conclave.SessionConfig) *conclave.Session {
	t.Helper()
	s, err := n.NewSession(Bounded(t), cfg)
	Must(t, err)
	return s
}

// MustAttach attaches a session.
func MustAttach(t testing.TB, n Access, id conclave.SessionID) *conclave.Session {
	t.Helper()
	s, err := n.AttachSession(Bounded(t), id)
	Must(t, err)
	return s
}

// Sessions lists the group's sessions as a node sees them.
func Sessions(t testing.TB, n Access) []conclave.SessionInfo {
	t.Helper()
	list, err := Collect(n.Sessions(Bounded(t)))
	Must(t, err)
	return list
}

// Locks lists the locks of the group as a node sees them.
func Locks(t testing.TB, n Access, prefix string) []conclave.LockInfo {
	t.Helper()
	list, err := Collect(n.Locks(Bounded(t), prefix))
	Must(t, err)
	return list
}

// FindSession returns a session as a node sees it; ok is false when it has ended.
func FindSession(t testing.TB, n Access, id conclave.SessionID) (info conclave.SessionInfo, ok bool) {
	t.Helper()
	list := Sessions(t, n)
	i := slices.IndexFunc(list, func(s conclave.SessionInfo) bool { return s.ID == id })
	if i < 0 {
		return conclave.SessionInfo{}, false
	}
	return list[i], true
}

// OwnSession returns the ID of the only session of a node.
func OwnSession(t testing.TB, n Access) conclave.SessionID {
	t.Helper()
	id := ID(n)
	list := slices.DeleteFunc(Sessions(t, n), func(s conclave.SessionInfo) bool { return s.Node != id })
	if len(list) != 1 {
		t.Fatalf("the node has %d sessions; want 1: %+v", len(list), list)
	}
	return list[0].ID
}

// AwaitEnded blocks until the group does not have the session any more.
func AwaitEnded(t testing.TB, n Access, id conclave.SessionID) {
	t.Helper()
	for {
		if _, ok := FindSession(t, n, id); !ok {
			return
		}
		Pass(5 * time.Millisecond)
	}
}

// MustCheck registers a check.
func MustCheck(t testing.TB, n *conclave.Node, name string, ttl time.Duration) *conclave.Check {
	t.Helper()
	c, err := n.RegisterCheck(Bounded(t), name, ttl)
	Must(t, err)
	return c
}

// MustCampaign campaigns until elected and returns the fence.
func MustCampaign(t testing.TB, e *conclave.Election, value string) conclave.Fence {
	t.Helper()
	f, err := e.Campaign(Bounded(t), []byte(value))
	Must(t, err)
	return f
}

// WantLeader checks that a node leads the election.
func WantLeader(t testing.TB, n Access, e *conclave.Election, value string, f conclave.Fence) {
	t.Helper()
	l, err := e.Leader(Bounded(t))
	if err != nil || string(l.Value) != value || l.Fence != f || l.Node != ID(n) {
		t.Fatalf("leader is %+v, %v; want %q under fence %v", l, err, value, f)
	}
}

// MustAcquire acquires permits of a semaphore.
func MustAcquire(t testing.TB, s *conclave.Semaphore, n int) *conclave.Permit {
	t.Helper()
	p, err := s.Acquire(Bounded(t), n)
	Must(t, err)
	return p
}

// SemaphoreInfo returns the semaphore's state.
func SemaphoreInfo(t testing.TB, s *conclave.Semaphore) conclave.SemaphoreInfo {
	t.Helper()
	info, err := s.Info(Bounded(t))
	Must(t, err)
	return info
}

// Acquiring is an Acquire that waits.
type Acquiring struct {
	Cancel context.CancelFunc
	Err    chan error // gets the error of a failed Acquire
	permit chan *conclave.Permit
}

// StartAcquire starts an Acquire and returns when the group has it in the queue.
func StartAcquire(t testing.TB, s *conclave.Semaphore, n int) *Acquiring {
	t.Helper()
	waiters := SemaphoreInfo(t, s).Waiters
	ctx, cancel := context.WithCancel(Bounded(t))
	a := &Acquiring{Cancel: cancel, permit: make(chan *conclave.Permit, 1), Err: make(chan error, 1)}
	go func() {
		if p, err := s.Acquire(ctx, n); err == nil {
			a.permit <- p
		} else {
			a.Err <- err
		}
	}()
	AwaitAcquirers(t, s, waiters+1)
	return a
}

// AwaitAcquirers blocks until so many wait for permits.
func AwaitAcquirers(t testing.TB, s *conclave.Semaphore, n int) {
	t.Helper()
	for SemaphoreInfo(t, s).Waiters != n {
		Pass(time.Millisecond)
	}
}

// Granted waits for the permit.
func (a *Acquiring) Granted(t testing.TB) *conclave.Permit {
	t.Helper()
	select {
	case p := <-a.permit:
		return p
	case err := <-a.Err:
		t.Fatal(err)
		return nil
	}
}

// MustPut writes a key.
func MustPut(t testing.TB, k *conclave.KV, key, value string, opts ...conclave.PutOption) conclave.Entry {
	t.Helper()
	e, err := k.Put(Bounded(t), key, []byte(value), opts...)
	Must(t, err)
	return e
}

// MustGet reads a key.
func MustGet(t testing.TB, k *conclave.KV, key string, opts ...conclave.ReadOption) conclave.Entry {
	t.Helper()
	e, err := k.Get(Bounded(t), key, opts...)
	Must(t, err)
	return e
}

// MustAcquireKey locks a key for a session.
func MustAcquireKey(t testing.TB, k *conclave.KV, key, value string, s *conclave.Session) conclave.Entry {
	t.Helper()
	e, err := k.Acquire(Bounded(t), key, []byte(value), s.ID())
	Must(t, err)
	return e
}

// WantEntry compares entries.
func WantEntry(t testing.TB, got, want conclave.Entry) {
	t.Helper()
	if got.Key != want.Key || !bytes.Equal(got.Value, want.Value) || got.Flags != want.Flags ||
		got.CreateIndex != want.CreateIndex || got.ModifyIndex != want.ModifyIndex ||
		got.LockIndex != want.LockIndex || got.Session != want.Session || got.Fence != want.Fence {
		t.Fatalf("the entry is\n%+v; want\n%+v", got, want)
	}
}

// NextEvent waits for the first change behind an index.
func NextEvent(t testing.TB, k *conclave.KV, prefix string, after uint64) conclave.Event {
	t.Helper()
	for e, err := range k.Watch(Bounded(t), prefix, after) {
		Must(t, err)
		return e
	}
	return conclave.Event{}
}

// WatchUntil collects the events of a watch until one of the key until comes.
func WatchUntil(ctx context.Context, k *conclave.KV, prefix string, after uint64, until string) (events []string, err error) {
	for e, err := range k.Watch(ctx, prefix, after) {
		if err != nil {
			return events, err
		}
		if e.Entry.Key == until {
			return events, nil
		}
		events = append(events, EventString(e))
	}
	return events, errors.New("the watch ended without an error")
}

// EventString describes an event for WatchUntil.
func EventString(e conclave.Event) string {
	return fmt.Sprintf("%d %q=%q %v", e.Index, e.Entry.Key, e.Entry.Value, e.Deleted)
}

// WantWatchEnd checks that a watch ends with an error, as the last that it yields.
func WantWatchEnd(t testing.TB, ctx context.Context, k *conclave.KV, after uint64, want error) {
	t.Helper()
	var last error
	for _, err := range k.Watch(ctx, "", after) {
		if last != nil {
			t.Fatalf("the watch yielded more after %v", last)
		}
		last = err
	}
	WantError(t, last, want)
}

// Busy makes twice so many entries.
func Busy(t testing.TB, n *conclave.Node, cycles int) {
	t.Helper()
	l := n.FencedLock("busy")
	for range cycles {
		MustLock(t, l)
		MustUnlock(t, l)
	}
}

// AwaitShards waits until the set is as wanted.
func AwaitShards(t testing.TB, s *conclave.Shards, wanted func(conclave.ShardsInfo) bool) {
	t.Helper()
	ctx := Bounded(t)
	for {
		info, err := s.Info(ctx)
		Must(t, err)
		if wanted(info) {
			return
		}
		Pass(time.Millisecond)
	}
}
