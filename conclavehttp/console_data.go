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

// What the templates show.

// pageData is a whole page.
type pageData struct {
	view
	CanAct bool
	Parts  []part
}

// Part returns a part of the page.
func (p pageData) Part(id string) part {
	i := slices.IndexFunc(p.Parts, func(p part) bool { return p.ID == id })
	if i < 0 {
		return part{ID: id}
	}
	return p.Parts[i]
}

// Tabs returns the listings.
func (p pageData) Tabs() []kind { return listings() }

// Named reports whether the listing is of names, so that it can be searched.
func (p pageData) Named() bool { return p.Show != kindSessions && p.Show != kindChecks }

// snapshot is what a node knows without asking the group.
type snapshot struct {
	At      time.Time
	Stopped bool // what the node knew last would hide what the group has now
	Status  conclave.Status
	Health  conclave.Health
	Metrics conclave.Metrics
	Leader  string
	Events  []happening // the latest first
	Chart   plot
	CanAct  bool
	members memberNames
}

// happening is an event of the timeline.
type happening struct {
	conclave.HistoryEvent
	Member, By string
	Class      string // of its colour and mark
	// Leaderless is how long there was no leader, in short, before this one.
	Leaderless time.Duration
}

const (
	maxTimeline = 40  // events about members, and as many about sessions
	maxHolders  = 8   // of a semaphore that are listed
	maxValue    = 200 // bytes of an election's value that are shown
)

func takeSnapshot(node *conclave.Node, now time.Time) *snapshot {
	s := &snapshot{At: now, Stopped: node.Err() != nil, Status: node.Status(), Health: node.Health(), Metrics: node.Metrics()}
	s.members = namesOf(node)
	slices.SortStableFunc(s.Status.Members, func(a, b conclave.Member) int { return cmp.Compare(a.Name, b.Name) })
	s.Leader = s.members.of(s.Status.Leader)
	s.Events = timeline(node.History(), s.members)
	return s
}

// classOf returns how serious an event is.
func classOf(e conclave.HistoryEvent) string {
	switch e.Kind {
	case conclave.HistoryHoldLost, conclave.HistorySessionExpired, conclave.HistorySessionCheck, conclave.HistoryMemberDead:
		return "bad"
	case conclave.HistorySessionForced, conclave.HistorySessionSuperseded, conclave.HistorySessionRemoved,
		conclave.HistoryMemberRemoved, conclave.HistoryMemberReplaced, conclave.HistoryMemberDemoted, conclave.HistorySnapshot:
		return "warn"
	case conclave.HistoryLeader:
		if e.Member == 0 {
			return "bad"
		}
	case conclave.HistoryRedundancy:
		switch {
		case e.Voters < 0:
			return "bad"
		case e.Voters == 0:
			return "warn"
		}
	}
	return "good"
}

// Failing returns the checks of the node's health that fail; of a node that has stopped, why.
func (s *snapshot) Failing() []conclave.HealthCheck {
	if s.Stopped {
		return s.Health.Reasons[:1]
	}
	return slices.DeleteFunc(slices.Clone(s.Health.Reasons), func(c conclave.HealthCheck) bool { return c.OK })
}

// Clock returns the time of day of an event, with the day if it is another one.
func (s *snapshot) Clock(at time.Time) string {
	if at.YearDay() != s.At.YearDay() || at.Year() != s.At.Year() {
		return at.Format("Jan 2 15:04:05")
	}
	return at.Format("15:04:05")
}

// IsLeader reports whether a member leads.
func (s *snapshot) IsLeader(id conclave.MemberID) bool { return id == s.Status.Leader }

// IsSelf reports whether a member is this node.
func (s *snapshot) IsSelf(id conclave.MemberID) bool { return id == s.Status.ID }

// Leads reports whether this node leads, so that it knows how far the others are behind.
func (s *snapshot) Leads() bool { return s.Status.Leader == s.Status.ID }

// IsVoter reports whether a member votes.
func (s *snapshot) IsVoter(m conclave.Member) bool { return m.Role == conclave.Voter }

// memberNames has the members' names, and their liveness.
type memberNames map[conclave.MemberID]conclave.Member

func namesOf(node *conclave.Node) memberNames {
	return namesIn(node.Status().Members)
}

// namesIn has members of the same name, such as those on one host by default, named with their
// IDs.
func namesIn(members []conclave.Member) memberNames {
	bearers := make(map[string]int)
	for _, m := range members {
		bearers[m.Name]++
	}
	names := make(memberNames)
	for _, m := range members {
		if m.Name != "" && bearers[m.Name] > 1 {
			m.Name = fmt.Sprintf("%s (%.8s…)", m.Name, m.ID)
		}
		names[m.ID] = m
	}
	return names
}

func (n memberNames) of(id conclave.MemberID) string {
	if id == 0 {
		return ""
	}
	return cmp.Or(n[id].Name, id.String())
}

// answerData is the answer to a query.
type answerData struct {
	Kind          kind
	Prefix, After string
	CanAct        bool
	Err           error
	members       memberNames

	Locks      []conclave.LockInfo
	Semaphores []conclave.SemaphoreInfo
	Elections  []conclave.Leader
	Sessions   []conclave.SessionInfo
	Checks     []conclave.CheckInfo
	Next       string // the cursor of the next page; "": there is none

	Explanation conclave.Explanation
	MoreQueue   int // waiters that are not listed
	Cycles      []conclave.WaitCycle
	MoreCycles  int
	Group       conclave.GroupConfig
}

// process is a member or a client. Of a client no failure detector knows whether it is alive.
type process struct {
	Name, ID       string
	IsMember, Dead bool
	IsClient       bool
}

// On returns the process with an ID, and what this node's failure detector holds of it. A client
// has no name but that of its session.
func (a answerData) On(id conclave.MemberID, client bool, session string) process {
	m, isMember := a.members[id]
	p := process{Name: a.members.of(id), ID: id.String(), IsMember: isMember, Dead: isMember && !m.Alive, IsClient: client}
	if client {
		p.Name = cmp.Or(session, p.Name)
	}
	return p
}

// ownerData is a holder or waiter for its template.
type ownerData struct {
	Label string
	On    process
}

// Owner returns a holder or waiter.
func (a answerData) Owner(o conclave.LockOwner) ownerData {
	return ownerData{o.Label, a.On(o.Node, o.Client, o.SessionName)}
}

// Empty reports whether the page of a listing is empty.
func (a answerData) Empty() bool {
	return len(a.Locks)+len(a.Semaphores)+len(a.Elections)+len(a.Sessions)+len(a.Checks) == 0
}

func (a *answerData) list(ctx context.Context, node *conclave.Node, q query) {
	switch q.kind {
	case kindLocks:
		a.Locks, a.Next, a.Err = firstRows(node.Locks(ctx, q.prefix, conclave.After(q.after)), func(l conclave.LockInfo) string { return l.Name })
	case kindSemaphores:
		a.Semaphores, a.Next, a.Err = firstRows(node.Semaphores(ctx, q.prefix, conclave.After(q.after)), func(s conclave.SemaphoreInfo) string { return s.Name })
	case kindElections:
		a.Elections, a.Next, a.Err = firstRows(node.Elections(ctx, q.prefix, conclave.After(q.after)), func(l conclave.Leader) string { return l.Name })
	case kindSessions:
		var after conclave.SessionInfo
		if q.after != "" {
			if after, a.Err = parseSessionCursor(q.after); a.Err != nil {
				return
			}
		}
		a.Sessions, a.Next, a.Err = firstRows(node.Sessions(ctx, conclave.After(after)), sessionCursor)
	case kindChecks:
		var after conclave.CheckInfo
		if q.after != "" {
			if after, a.Err = parseCheckCursor(q.after); a.Err != nil {
				return
			}
		}
		a.Checks, a.Next, a.Err = firstRows(node.Checks(ctx, conclave.After(after)), checkCursor)
	}
}

// firstRows returns the first items of a listing, and the cursor of the last one if more
// follow. It reads one page of the group's in most cases.
func firstRows[T any](all iter.Seq2[T, error], cursor func(T) string) (list []T, next string, err error) {
	for item, err := range all {
		if err != nil {
			return list, "", err
		}
		if len(list) == rows {
			return list, cursor(list[rows-1]), nil
		}
		list = append(list, item)
	}
	return list, "", nil
}
