package conclavehttp

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/conclave-go/conclave"
)

// What the templates show.

// pageData is a whole page.
type pageData struct {
	view
	Default  string // the default group's name
	Owner    string // the process or session of which the listing is
	CanAct   bool
	WithKeys bool // keys are shown
	Parts    []part
}

// Part returns a part of the page.
func (p pageData) Part(id string) part {
	i := slices.IndexFunc(p.Parts, func(p part) bool { return p.ID == id })
	if i < 0 {
		return part{ID: id}
	}
	return p.Parts[i]
}

// Tabs returns the listings; checks are held by no process.
func (p pageData) Tabs() []kind {
	return slices.DeleteFunc(listings(), func(k kind) bool { return k == kindKeys && !p.WithKeys || k == kindChecks && p.Of != "" })
}

// Named reports whether the listing is of names, so that it can be searched.
func (p pageData) Named() bool { return p.Show != kindSessions && p.Show != kindChecks }

// snapshot is what a node knows without asking the group.
type snapshot struct {
	At      time.Time
	Stopped bool // what the node knew last would hide what the group has now
	Status  conclave.Status
	Health  conclave.Health
	Metrics conclave.Metrics
	Leader  string      // of the default group
	Group   string      // the further group that the page shows; "": the default one
	Events  []happening // the latest first
	Chart   plot
	CanAct  bool
	// Expiring are the certificates that have expired or soon do.
	Expiring []validity
	members  memberNames
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
func (s *snapshot) Clock(at time.Time) string { return clock(s.At, at) }

func clock(now, at time.Time) string {
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
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
	InGroup       string // the further group that was asked; "": the default one
	Kind          kind
	Prefix, After string
	Of            string // whose holds are listed; "": all
	CanAct        bool
	Err           error
	Now           time.Time
	of            ownership
	members       memberNames

	Locks      []conclave.LockInfo
	Semaphores []conclave.SemaphoreInfo
	Elections  []conclave.Leader
	ShardSets  []shardSet
	Jobs       []job
	Keys       []conclave.KeyInfo
	Sessions   []conclave.SessionInfo
	Checks     []conclave.CheckInfo
	Next       string // the cursor of the next page; "": there is none
	Looked     int    // of how many objects these are the ones; 0: of all, or of those up to the last one

	Waited     []waitedLock
	MoreWaited int // that are not listed

	Explanation conclave.Explanation
	MoreHolders int // that share the lock and are not listed
	MoreQueue   int // waiters that are not listed
	Former      []formerHolder
	Cycles      []conclave.WaitCycle
	MoreCycles  int
	Settings    conclave.GroupConfig
	Validity    []validity
}

// process is a member or a client. Of a client no failure detector knows whether it is alive.
type process struct {
	Group          string // in which a link lists what it holds
	Name, ID       string
	IsMember, Dead bool
	IsClient       bool
}

// On returns the process with an ID, and what this node's failure detector holds of it. A client
// has no name but that of its session.
func (a answerData) On(id conclave.MemberID, client bool, session string) process {
	m, isMember := a.members[id]
	p := process{Group: a.InGroup, Name: a.members.of(id), ID: id.String(), IsMember: isMember, Dead: isMember && !m.Alive, IsClient: client}
	if client {
		p.Name = cmp.Or(session, p.Name)
	}
	return p
}

// holdingData is a lock's holder for its template.
type holdingData struct {
	conclave.LockInfo
	On process
}

// Holding returns a lock with its holder.
func (a answerData) Holding(l conclave.LockInfo) holdingData {
	return holdingData{l, a.On(l.Node, l.Client, l.SessionName)}
}

// IsZero reports whether there is no session.
func (a answerData) IsZero(id conclave.SessionID) bool { return id == conclave.SessionID{} }

// Clock is as that of a snapshot.
func (a answerData) Clock(at time.Time) string { return clock(a.Now, at) }

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
	return len(a.Locks)+len(a.Semaphores)+len(a.Elections)+len(a.ShardSets)+len(a.Jobs)+len(a.Keys)+len(a.Sessions)+len(a.Checks) == 0
}
