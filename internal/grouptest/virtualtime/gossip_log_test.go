package virtualtime

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// gossipLog collects what memberlist logs about processes on each member, so that a
// test sees the failure detector's own view and not what the members make of it.
type gossipLog struct {
	mu    sync.Mutex
	lines []gossipLine // guarded by mu
}

type gossipLine struct {
	at   time.Time
	by   string // the member's name
	text string
}

// memberlist's messages about a process, and about itself.
const (
	suspectedMessage = "memberlist: Suspect %s has failed"
	deadMessage      = "memberlist: Marking %s as failed"
	refutedMessage   = "memberlist: Refuting a suspect message"
)

// gossipHandler is a log handler of one member for a gossipLog.
type gossipHandler struct {
	slog.Handler
	log *gossipLog
	by  string
}

func (h gossipHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h gossipHandler) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "memberlist: ") {
		h.log.mu.Lock()
		defer h.log.mu.Unlock()
		h.log.lines = append(h.log.lines, gossipLine{time.Now(), h.by, r.Message})
	}
	return nil
}

// suspected returns the first suspicion of a process by a member other than except.
func (l *gossipLog) suspected(process, except string) (gossipLine, bool) {
	return l.first(fmt.Sprintf(suspectedMessage, process), except)
}

// declaredDead returns when a process was first declared dead by a member other
// than except.
func (l *gossipLog) declaredDead(process, except string) (gossipLine, bool) {
	return l.first(fmt.Sprintf(deadMessage, process), except)
}

// refuted reports whether any process has refuted a suspicion.
func (l *gossipLog) refuted() bool {
	_, ok := l.first(refutedMessage, "")
	return ok
}

func (l *gossipLog) first(text, except string) (gossipLine, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.lines, func(line gossipLine) bool { return line.by != except && strings.Contains(line.text, text) })
	if i < 0 {
		return gossipLine{}, false
	}
	return l.lines[i], true
}

// hasDeclaredDead reports whether one member has declared a process dead.
func (l *gossipLog) hasDeclaredDead(by, process string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprintf(deadMessage, process)
	return slices.ContainsFunc(l.lines, func(line gossipLine) bool { return line.by == by && strings.Contains(line.text, text) })
}
