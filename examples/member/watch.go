package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// teller prints a line with the time of day.
type teller func(format string, args ...any)

func newTeller(w io.Writer) teller {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// watch tells what happens in the group.
type watch struct {
	say teller

	mu     sync.Mutex
	node   *conclave.Node    // guarded by mu; nil until Open has returned
	leader conclave.MemberID // guarded by mu; told of last
}

func newWatch(say teller) *watch { return &watch{say: say} }

func (w *watch) events() *conclave.Events {
	return &conclave.Events{LeaderChanged: w.leaderChanged, SessionEnded: w.sessionEnded}
}

func (w *watch) opened(node *conclave.Node) {
	status := node.Status()
	w.say("open: member %v of a group of %d", status.ID, len(status.Members))
	w.mu.Lock()
	w.node = node
	w.mu.Unlock()
	w.leaderChanged(status.Leader, status.Term)
}

// leaderChanged may be called before Open has returned. An event function must
// not wait for that, since Open may wait for it.
func (w *watch) leaderChanged(leader conclave.MemberID, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node == nil || leader == w.leader {
		return
	}
	w.leader = leader
	if leader == 0 {
		w.say("no leader is known")
		return
	}
	w.say("%s leads, term %d", nameOf(w.node, leader), term)
}

func (w *watch) sessionEnded(_ conclave.SessionID, why error) {
	if !errors.Is(why, conclave.ErrClosed) { // that would be by our own farewell
		w.say("the session ended: %v", why)
	}
}

// nameOf is what people call a member: its name, if it was given one, and where
// it is.
func nameOf(node *conclave.Node, id conclave.MemberID) string {
	for _, m := range node.Status().Members {
		if m.ID == id {
			return strings.TrimSpace(m.Name + " " + m.Addr)
		}
	}
	return id.String()
}
