package conclavetest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/conclave-go/conclave"
)

// leaders records from the nodes' events which member follows which.
type leaders struct {
	mu      sync.Mutex
	views   []view        // guarded by mu; by member
	changed chan struct{} // guarded by mu; closed when something has changed
}

// view is one member's view.
type view struct {
	id     conclave.MemberID // its own; 0 while it does not run
	leader conclave.MemberID
	term   uint64
}

func newLeaders(n int) *leaders {
	return &leaders{views: make([]view, n), changed: make(chan struct{})}
}

// listen returns the events of the test with a LeaderChanged that also updates l.
func (l *leaders) listen(i int, on *conclave.Events) *conclave.Events {
	var events conclave.Events
	if on != nil {
		events = *on
	}
	wrapped := events.LeaderChanged
	events.LeaderChanged = func(leader conclave.Member, term uint64) {
		l.update(func() { l.views[i].leader, l.views[i].term = leader.ID, term })
		if wrapped != nil {
			wrapped(leader, term)
		}
	}
	return &events
}

func (l *leaders) started(i int, id conclave.MemberID) {
	l.update(func() { l.views[i].id = id })
}

func (l *leaders) stopped(i int) {
	l.update(func() { l.views[i] = view{} })
}

// reconsider wakes waiting calls after a change of the network.
func (l *leaders) reconsider() { l.update(func() {}) }

func (l *leaders) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait blocks until a member leads a majority that it is connected to.
func (l *leaders) wait(ctx context.Context, connected func(i, j int) bool) (int, error) {
	for {
		l.mu.Lock()
		changed := l.changed
		leader, ok := l.find(connected)
		l.mu.Unlock()
		if ok {
			return leader, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (l *leaders) find(connected func(i, j int) bool) (int, bool) {
	for i, candidate := range l.views {
		if candidate.id == 0 || candidate.leader != candidate.id {
			continue
		}
		followers := 0
		for j, v := range l.views {
			if v.id != 0 && v.leader == candidate.id && v.term == candidate.term && connected(i, j) {
				followers++
			}
		}
		if followers > len(l.views)/2 {
			return i, true
		}
	}
	return 0, false
}

// String describes the views, for a failed test.
func (l *leaders) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for i, v := range l.views {
		if v.id == 0 {
			fmt.Fprintf(&b, "[%d is stopped] ", i)
			continue
		}
		fmt.Fprintf(&b, "[%d is %v and follows %v in term %d] ", i, v.id, v.leader, v.term)
	}
	return b.String()
}
