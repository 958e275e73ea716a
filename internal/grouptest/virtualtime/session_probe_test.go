package virtualtime

import (
	"slices"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// probe shows when and where a session ends: the session holds a lock, for which
// another session waits, and a key that is deleted with the session, as every member
// sees in the log.
type probe struct {
	*grouptest.Group
	name    string
	session *conclave.Session
	delay   time.Duration   // the session's lock-delay
	ends    []chan endEvent // by member
	node    *conclave.Node  // the session's
	waiter  *conclave.Node
	granted chan attempt // to the waiter
}

// endEvent is when and by which change of the log a member saw a session end.
type endEvent struct {
	at    time.Time
	index uint64
}

// longTTL is longer than any test.
const longTTL = time.Hour

// newProbe opens the session on one member and waits for it on another. checks is
// that of SessionConfig.
func newProbe(g *grouptest.Group, owner, waiter int, name string, ttl, delay time.Duration, checks []string) *probe {
	g.T.Helper()
	s := &probe{Group: g, name: name, delay: delay, node: g.Nodes[owner], waiter: g.Nodes[waiter], granted: make(chan attempt, 1)}
	s.session = grouptest.MustSession(g.T, g.Nodes[owner], &conclave.SessionConfig{Name: name, TTL: ttl, LockDelay: delay, Behavior: conclave.DeleteKeys, Checks: checks, NoChecks: checks != nil && len(checks) == 0})
	grouptest.MustLock(g.T, s.session.FencedLock(name))
	held := grouptest.MustAcquireKey(g.T, g.Nodes[owner].KV(), name, "", s.session)
	for _, n := range g.Nodes {
		seen := make(chan endEvent, 1)
		s.ends = append(s.ends, seen)
		if n == nil {
			continue
		}
		go func() {
			for e, err := range n.KV().Watch(g.T.Context(), name, held.ModifyIndex) {
				if err != nil {
					return // the node stops, or the test ends
				}
				if e.Deleted && e.Entry.Key == name {
					seen <- endEvent{time.Now(), e.Index}
					return
				}
			}
		}()
	}
	l := grouptest.MustSession(g.T, g.Nodes[waiter], &conclave.SessionConfig{TTL: longTTL, LockDelay: conclave.NoLockDelay, NoChecks: true}).FencedLock(name)
	go func() {
		_, err := l.Lock(g.T.Context())
		s.granted <- attempt{at: time.Now(), err: err}
	}()
	grouptest.AwaitWaiters(g.T, l, 1)
	return s
}

// awaitEnd waits until the given members have seen the end, checks that it is at one
// index, and returns when the first of them saw it.
func (s *probe) awaitEnd(members ...int) time.Time {
	s.T.Helper()
	var all []endEvent
	for _, i := range members {
		select {
		case e := <-s.ends[i]:
			all = append(all, e)
		case <-time.After(5 * time.Minute): // virtual
			s.T.Fatalf("member %d has not seen the end of %q", i, s.name)
		}
	}
	first := slices.MinFunc(all, func(a, b endEvent) int { return a.at.Compare(b.at) })
	for n, e := range all {
		if e.index != first.index {
			s.T.Errorf("%q ends at index %d for member %d and at %d for another", s.name, e.index, members[n], first.index)
		}
		wantBetween(s.T, "the end at another member", e.at, first.at, first.at.Add(heartbeat))
	}
	for _, i := range members {
		if _, alive := grouptest.FindSession(s.T, s.Nodes[i], s.session.ID()); alive {
			s.T.Errorf("%q has ended, and member %d still has the session", s.name, i)
		}
	}
	return first.at
}

// wantGranted checks that the waiter is granted the lock when the lock-delay has
// passed since the session's end.
func (s *probe) wantGranted(ended time.Time) {
	s.T.Helper()
	select {
	case got := <-s.granted:
		if got.err != nil {
			s.T.Errorf("the waiter for %q gets %v", s.name, got.err)
		}
		from := ended.Add(max(s.delay, 0))
		wantBetween(s.T, "the grant of "+s.name, got.at, from, from.Add(heartbeat))
	case <-time.After(5 * time.Minute): // virtual
		s.T.Errorf("%q is not granted to its waiter", s.name)
	}
}

// wantAlive checks that the session is alive for the given members and in its own
// process, and that it holds what it held.
func (s *probe) wantAlive(members ...int) {
	s.T.Helper()
	if err := s.session.Err(); err != nil {
		s.T.Errorf("the process of %q has lost it: %v", s.name, err)
	}
	s.wantInGroup(members...)
}

// wantInGroup checks that the group has the session, whatever the state of its
// process.
func (s *probe) wantInGroup(members ...int) {
	s.T.Helper()
	for _, i := range members {
		if _, alive := grouptest.FindSession(s.T, s.Nodes[i], s.session.ID()); !alive {
			s.T.Errorf("%q has ended for member %d", s.name, i)
		}
		info, err := s.Nodes[i].FencedLock(s.name).Info(grouptest.Within(s.T, election))
		if err != nil || info.Session != s.session.ID() {
			s.T.Errorf("for member %[3]d the lock %[1]q is %+[2]v, %[4]v", s.name, info, i, err)
		}
	}
	select {
	case got := <-s.granted:
		if got.err == nil || s.waiter.Err() == nil {
			s.T.Errorf("%q is alive, and the wait for what it holds has ended: %+v", s.name, got)
		}
	default:
	}
}
