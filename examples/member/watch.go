package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
)

// logFunc prints one line with the time of day.
type logFunc func(format string, args ...any)

func newLog(w io.Writer) logFunc {
	var mu sync.Mutex // one line at a time
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "%s  %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
	}
}

// watch prints what happens in the group.
type watch struct {
	logf logFunc

	mu     sync.Mutex
	node   *conclave.Node               // guarded by mu; nil until Open has returned
	leader conclave.MemberID            // guarded by mu; the last one printed
	names  map[conclave.MemberID]string // guarded by mu; a removed member is printed by its last one
}

func newWatch(logf logFunc) *watch {
	return &watch{logf: logf, names: make(map[conclave.MemberID]string)}
}

func (w *watch) events() *conclave.Events {
	return &conclave.Events{
		LeaderChanged:  w.leaderChanged,
		SessionEnded:   w.sessionEnded,
		MemberJoined:   func(id conclave.MemberID) { w.member(id, "joined the group as a standby") },
		MemberPromoted: func(id conclave.MemberID) { w.member(id, "is a voter now") },
		MemberDemoted:  func(id conclave.MemberID) { w.member(id, "is a standby now") },
		MemberReplaced: func(id, by conclave.MemberID) {
			w.member(id, "is a standby now: %s votes in its place", w.nameOf(by))
		},
		MemberRemoved:     func(id conclave.MemberID) { w.member(id, "was removed from the group") },
		RedundancyChanged: w.redundancyChanged,
	}
}

// member prints what happened to a member, by its ID as well: commands take it.
func (w *watch) member(id conclave.MemberID, what string, args ...any) {
	w.logf("member %v (%s) %s", id, w.nameOf(id), fmt.Sprintf(what, args...))
}

// nameOf returns the member's last known name and address.
func (w *watch) nameOf(id conclave.MemberID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node == nil {
		return "unknown"
	}
	for _, m := range w.node.Status().Members {
		w.names[m.ID] = nameOf(w.node, m.ID)
	}
	return w.names[id]
}

func (w *watch) redundancyChanged(voters int) {
	if voters < 0 {
		w.logf("the group has NO QUORUM: start the voters that are down")
		return
	}
	w.logf("voters that may fail before the group has no quorum: %d", voters)
}

func (w *watch) opened(node *conclave.Node) {
	status := node.Status()
	w.logf("open: member %v of a group of %d", status.ID, len(status.Members))
	w.mu.Lock()
	w.node = node
	w.mu.Unlock()
	w.leaderChanged(status.Leader, status.Term)
}

// leaderChanged may be called before Open has returned. It must not wait for
// Open, since Open may wait for it.
func (w *watch) leaderChanged(leader conclave.MemberID, term uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.node == nil || leader == w.leader {
		return
	}
	w.leader = leader
	if leader == 0 {
		w.logf("the group has no leader")
		return
	}
	w.logf("%s leads the group, term %d", nameOf(w.node, leader), term)
}

func (w *watch) sessionEnded(_ conclave.SessionID, why error) {
	if !errors.Is(why, conclave.ErrClosed) { // Close ends the session as well
		w.logf("the session ended: %v", why)
	}
}

// nameOf returns the member's name and address, or its ID if it is unknown.
func nameOf(node *conclave.Node, id conclave.MemberID) string {
	for _, m := range node.Status().Members {
		if m.ID == id {
			return strings.TrimSpace(m.Name + " " + m.Addr)
		}
	}
	return id.String()
}

// killCommand returns the command that ends this process without a graceful
// shutdown.
func killCommand() string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", os.Getpid())
	}
	return fmt.Sprintf("kill -9 %d", os.Getpid())
}
