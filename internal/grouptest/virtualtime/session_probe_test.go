package virtualtime

import (
	"slices"
	"time"
)

// stake is what a session has in a group in a bubble, and shows when and where
// the session ends: a lock, which another session waits for, and a key, which is
// deleted with the session and which every member sees in the log.
type stake struct {
	*grouptest.Group
	name    string
	session *Session
	delay   time.Duration   // the session's lock-delay
	ends    []chan sighting // by member
	waiter  *Node
	granted chan bid // to the waiter
}

// sighting is when and by which change of the log a member saw a session end.
type sighting struct {
	at    time.Time
	index uint64
}

// stakeTTL is so long that in a bubble no session ends by it.
const stakeTTL = time.Hour

// stake opens a session of one member, which another one waits for. The checks
// are those that the session depends on; nil is the default.
func (g *grouptest.Group) stake(owner, waiter int, name string, ttl, delay time.Duration, checks []string) *stake {
	g.t.Helper()
	s := &stake{bubbleGroup: g, name: name, delay: delay, waiter: g.Nodes[waiter], granted: make(chan bid, 1)}
	s.session = grouptest.MustSession(g.t, g.Nodes[owner], &SessionConfig{Name: name, TTL: ttl, LockDelay: delay, Behavior: Delete, Checks: checks})
	grouptest.MustLock(g.t, s.session.FencedLock(name))
	held := grouptest.MustAcquireKey(g.t, g.Nodes[owner].KV(), name, "", s.session)
	for _, n := range g.Nodes {
		seen := make(chan sighting, 1)
		s.ends = append(s.ends, seen)
		if n == nil {
			continue
		}
		go func() {
			for e, err := range n.KV().Watch(g.t.Context(), name, held.ModifyIndex) {
				if err != nil {
					return // the node goes, or the test ends
				}
				if e.Deleted && e.Entry.Key == name {
					seen <- sighting{time.Now(), e.Index}
					return
				}
			}
		}()
	}
	l := grouptest.MustSession(g.t, g.Nodes[waiter], &SessionConfig{TTL: stakeTTL, LockDelay: NoLockDelay, Checks: NoChecks}).FencedLock(name)
	go func() {
		_, err := l.Lock(g.t.Context())
		s.granted <- bid{at: time.Now(), err: err}
	}()
	grouptest.AwaitWaiters(g.t, l, 1)
	return s
}

// ended waits until the members given have seen the end, and checks that they
// have seen one and the same. It returns when the first of them did.
func (s *stake) ended(members ...int) time.Time {
	s.t.Helper()
	var all []sighting
	for _, i := range members {
		select {
		case e := <-s.ends[i]:
			all = append(all, e)
		case <-time.After(5 * time.Minute): // virtual
			s.t.Fatalf("member %d does not see %q end", i, s.name)
		}
	}
	first := slices.MinFunc(all, func(a, b sighting) int { return a.at.Compare(b.at) })
	for n, e := range all {
		if e.index != first.index {
			s.t.Errorf("%q ends at index %d for member %d and at %d for another", s.name, e.index, members[n], first.index)
		}
		grouptest.WantBetween(s.t, "the end at another member", e.at, first.at, first.at.Add(grouptest.BubbleHeartbeat))
	}
	for _, i := range members {
		if _, alive := grouptest.FindSession(s.t, s.Nodes[i], s.session.ID()); alive {
			s.t.Errorf("%q has ended, and member %d still has the session", s.name, i)
		}
	}
	return first.at
}

// handedOn checks that the waiter is granted the lock when the lock-delay since
// the session's end is over, and not before.
func (s *stake) handedOn(ended time.Time) {
	s.t.Helper()
	select {
	case got := <-s.granted:
		if got.err != nil {
			s.t.Errorf("who waits for %q is told %v", s.name, got.err)
		}
		from := ended.Add(max(s.delay, 0))
		grouptest.WantBetween(s.t, "the grant of "+s.name, got.at, from, from.Add(grouptest.BubbleHeartbeat))
	case <-time.After(5 * time.Minute): // virtual
		s.t.Errorf("%q is not handed on", s.name)
	}
}

// wantAlive checks that the session lives, in the group as the members given
// have it and in its own process, and that what it holds is its own.
func (s *stake) wantAlive(members ...int) {
	s.t.Helper()
	if err := s.session.Err(); err != nil {
		s.t.Errorf("the process of %q is told %v", s.name, err)
	}
	s.wantKept(members...)
}

// wantKept checks that the group has the session, whatever has become of its
// process.
func (s *stake) wantKept(members ...int) {
	s.t.Helper()
	for _, i := range members {
		if _, alive := grouptest.FindSession(s.t, s.Nodes[i], s.session.ID()); !alive {
			s.t.Errorf("%q has ended for member %d", s.name, i)
		}
		info, err := s.Nodes[i].FencedLock(s.name).Info(grouptest.Within(s.t, grouptest.BubbleElection))
		if err != nil || info.Session != s.session.ID() {
			s.t.Errorf("the lock %q is with %+v for member %d, %v", s.name, info, i, err)
		}
	}
	select {
	case got := <-s.granted:
		if got.err == nil || s.waiter.Err() == nil {
			s.t.Errorf("%q lives, and the wait for what it holds has ended: %+v", s.name, got)
		}
	default:
	}
}

// others are the members of a group but for one.
func (g *grouptest.Group) others(i int) []int {
	return slices.DeleteFunc(allOf(len(g.Nodes)), func(j int) bool { return j == i })
}
