package conclavehttp

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

// ownership restricts a listing to what a process or a session holds. The zero value restricts nothing.
type ownership struct {
	process conclave.MemberID
	session conclave.SessionID
	// keys are the sessions of which keys are listed: a key names its session only. nil: they have not been read.
	keys map[conclave.SessionID]bool
}

// parseOwnership parses a member's or client's ID, or a session's.
func parseOwnership(text string) (o ownership, err error) {
	if text == "" || o.process.UnmarshalText([]byte(text)) == nil && o.process != 0 {
		return o, nil
	}
	if o.session, err = conclave.ParseSessionID(text); err != nil || o.session == (conclave.SessionID{}) {
		return o, fmt.Errorf("%w parameter of: want the ID of a member, client or session, got %q", conclave.ErrInvalid, text[:min(len(text), maxQuoted)])
	}
	return o, nil
}

func (o ownership) all() bool { return o.process == 0 && o.session == (conclave.SessionID{}) }

// has reports whether what a session of a process holds is listed.
func (o ownership) has(process conclave.MemberID, session conclave.SessionID) bool {
	return o.all() || o.process != 0 && process == o.process || o.process == 0 && session == o.session
}

// ownerOf returns the name of the process or session of an ID, for people: of a member its name.
func ownerOf(node *conclave.Node, of string) string {
	o, err := parseOwnership(of)
	switch {
	case err != nil || o.all():
		return ""
	case o.process == 0:
		return "session " + o.session.String()
	}
	if m, isMember := namesOf(node)[o.process]; isMember {
		return cmp.Or(m.Name, of)
	}
	return "process " + of
}

// reading bounds what one read of a pane looks at: each object is work for the goroutine that applies the log, in
// queries of 256 at most, and other panes wait.
type reading struct {
	looked int
	until  time.Time
	cut    bool // there is more than was looked at
}

const (
	maxLooked   = 16 << 10 // objects of a listing that one read of a pane looks at
	readingTime = readTimeout / 4
)

func newReading() *reading { return &reading{until: time.Now().Add(readingTime)} }

// more reports whether another object may be looked at. The first one always may, so that each page has a next one.
func (r *reading) more() bool {
	r.cut = r.looked > 0 && (r.looked >= maxLooked || !time.Now().Before(r.until))
	return !r.cut
}

// firstRows returns the first items of a listing that keep keeps, and the cursor of the last one that was looked at if more
// follow. It reads one page of the group's in most cases, unless few are kept.
func firstRows[T any](r *reading, all iter.Seq2[T, error], cursor func(T) string, keep func(*T) bool) (list []T, next string, err error) {
	var last T
	for item, err := range all {
		if err != nil {
			return list, "", err
		}
		if len(list) == rows || !r.more() {
			return list, cursor(last), nil
		}
		last = item
		r.looked++
		if keep(&item) {
			list = append(list, item)
		}
	}
	return list, "", nil
}

func (a *answerData) list(ctx context.Context, group *conclave.Group, q query) {
	of, r := a.of, newReading()
	switch q.kind {
	case kindLocks:
		a.Locks, a.Next, a.Err = firstRows(r, group.Locks(ctx, q.prefix, conclave.After(q.after)), func(l conclave.LockInfo) string { return l.Name },
			func(l *conclave.LockInfo) bool { return of.holds(r, l) })
	case kindSemaphores:
		a.Semaphores, a.Next, a.Err = firstRows(r, group.Semaphores(ctx, q.prefix, conclave.After(q.after)), func(s conclave.SemaphoreInfo) string { return s.Name },
			func(s *conclave.SemaphoreInfo) bool { return of.permits(r, s) })
	case kindElections:
		a.Elections, a.Next, a.Err = firstRows(r, group.Elections(ctx, q.prefix, conclave.After(q.after)), func(l conclave.Leader) string { return l.Name },
			func(l *conclave.Leader) bool { return of.has(l.Node, l.Session) })
	case kindShards:
		a.listShards(ctx, group, q, r)
	case kindJobs:
		a.listJobs(ctx, group, q, r)
	case kindKeys:
		a.listKeys(ctx, group, q, r)
	case kindSessions:
		var after conclave.SessionInfo
		if q.after != "" {
			if after, a.Err = parseSessionCursor(q.after); a.Err != nil {
				return
			}
		}
		a.Sessions, a.Next, a.Err = firstRows(r, group.Sessions(ctx, conclave.After(after)), sessionCursor,
			func(s *conclave.SessionInfo) bool { return of.has(s.Node, s.ID) })
	case kindChecks:
		var after conclave.CheckInfo
		if q.after != "" {
			if after, a.Err = parseCheckCursor(q.after); a.Err != nil {
				return
			}
		}
		a.Checks, a.Next, a.Err = firstRows(r, group.Checks(ctx, conclave.After(after)), checkCursor,
			func(c *conclave.CheckInfo) bool { return of.has(c.Node, conclave.SessionID{}) })
	}
	if r.cut {
		a.Looked = r.looked
	}
}

// holds reports whether a holder of a lock is listed. Of those that share the lock the first such one stands for all.
func (o ownership) holds(r *reading, l *conclave.LockInfo) bool {
	if o.all() || l.Shared == 0 {
		return o.all() || l.Held && o.has(l.Node, l.Session)
	}
	r.looked += len(l.Holders)
	i := slices.IndexFunc(l.Holders, func(h conclave.ShareInfo) bool { return o.has(h.Node, h.Session) })
	if i < 0 {
		return false
	}
	h := l.Holders[i]
	l.Node, l.Client, l.Session, l.SessionName = h.Node, h.Client, h.Session, h.SessionName
	l.Label, l.Holds, l.Since, l.Lingering, l.EndsIn = h.Label, h.Holds, h.Since, h.Lingering, h.EndsIn
	return true
}

// permits reports whether any of a semaphore's holders is listed, and drops the others.
func (o ownership) permits(r *reading, s *conclave.SemaphoreInfo) bool {
	if o.all() {
		return true
	}
	r.looked += len(s.Holders)
	s.Holders = slices.DeleteFunc(s.Holders, func(p conclave.PermitInfo) bool { return !o.has(p.Node, p.Session) })
	s.HolderCount = len(s.Holders)
	return len(s.Holders) > 0
}
