package conclave

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/remote"
	"github.com/conclave-go/conclave/internal/version"
)

// MemberID is a member's identity, generated at its first start and never reused.
type MemberID uint64

// String prints the ID as 16 hexadecimal digits.
func (id MemberID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText returns what String prints.
func (id MemberID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText parses what MarshalText returned.
func (id *MemberID) UnmarshalText(text []byte) error {
	parsed, err := strconv.ParseUint(string(text), 16, 64)
	if err != nil || len(text) != 16 {
		return fault("parse member ID", string(text), fmt.Errorf("%w: want 16 hexadecimal digits, got %q", ErrInvalid, text))
	}
	*id = MemberID(parsed)
	return nil
}

// Role is a member's role in the group.
type Role int

const (
	// Voter is a member that votes. A majority of the voters is a quorum.
	Voter Role = iota + 1
	// Standby is a member that has the state and does not vote: a Raft learner.
	Standby
)

// String returns "voter" or "standby".
func (r Role) String() string {
	switch r {
	case Voter:
		return "voter"
	case Standby:
		return "standby"
	}
	return fmt.Sprintf("Role(%d)", int(r))
}

// MarshalText returns what String prints.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses "voter" or "standby".
func (r *Role) UnmarshalText(text []byte) error {
	for _, role := range []Role{Voter, Standby} {
		if role.String() == string(text) {
			*r = role
			return nil
		}
	}
	return fault("parse role", string(text), fmt.Errorf("%w: want %v or %v, got %q", ErrInvalid, Voter, Standby, text))
}

// Member is a member of the group as this node sees it.
type Member struct {
	ID    MemberID
	Name  string
	Addr  string // its latest known address
	Role  Role
	Alive bool // the local failure detector's view; not authoritative
	// Lag is how many committed entries the member has not acknowledged. Only the leader
	// knows; it is 0 on all others.
	Lag uint64
	// LastContact is how long ago this node has received a Raft message from the member,
	// counted in heartbeats. The leader hears from all members at each heartbeat, the others
	// mostly from the leader. Negative: never; 0 for this node.
	LastContact time.Duration
	// Build is what the member's last process states to be its [Version], at most 64 bytes of
	// printable ASCII; "": unknown, as of a member that has not run since this node was opened, or
	// runs a build that does not state it. It is for people: a process may state anything.
	Build string
	// FeatureLevel is the highest that the member's last process supports, which holds back
	// Status.FeatureLevel; 0: none has registered yet.
	FeatureLevel uint32
	// LeaderPriority is the Config.LeaderPriority that the member's process states, if PriorityKnown: this node is connected to that
	// process, or is it. 0 without, as also of a build that does not know priorities.
	LeaderPriority int
	PriorityKnown  bool
}

// Status is a node's view of the default group at one moment. It may be out of date as soon as it is
// returned. [Node.Groups] and [Metrics] have the further groups.
type Status struct {
	ID      MemberID
	Name    string
	Group   string // its name; "" from a client's member that runs a build that does not report it
	Role    Role
	Leader  MemberID // 0: none is known
	Term    uint64   // Raft term
	Commit  uint64   // index of the last entry known to be committed
	Applied uint64   // index of the last entry applied here
	Members []Member // by ID, this one included
	// Redundancy is how many more voters may fail before the group has no quorum, in the
	// local failure detector's view; negative: it has none now. While a voter is replaced, a
	// majority of the voters before is needed too, although the new one has its Role already.
	Redundancy int
	// Reconciling is what the leader changes about the members' roles, or waits for, in
	// words for people. "": nothing, or this node does not lead.
	Reconciling string
	// FeatureLevel is the group's, as far as entries are applied here. It decides what commands
	// mean, and rises when every member supports a higher one (see docs/OPERATIONS.md).
	FeatureLevel uint32
}

// Version returns the version of this module in the running program, as "v0.1.0"; without one "(devel)", with the revision
// if the program is of this module's repository. It has at most 64 bytes.
func Version() string { return version.Current() }

// AwaitChange blocks until this node lists something else of the group than in the state with the number after, and
// returns the number of its present state; 0 is that of no state. What counts is a session of the group that is created or
// ends; a check there that is registered, deregistered, or gets another state or TTL; a member that joins, leaves, or
// shows another name, address, build, role or Alive. Renewals do not count, and sometimes nothing has changed. Read the
// number before what it is for, so that the next call does not miss a change in between:
//
//	for n := uint64(0); ; {
//		if n, err = node.AwaitChange(ctx, n); err != nil {
//			return err
//		}
//		show(node.Status(), node.Sessions(ctx))
//	}
//
// Numbers grow, and mean nothing to another node, or to this one after it was opened again: then AwaitChange
// returns at once. They are at least the index of the last change, and those of two groups have nothing to do with each
// other. Errors: ctx's, ErrClosed, ErrGroupNotFound, and ErrInvalid from a [Client]'s group, which does not follow its lists.
func (g *Group) AwaitChange(ctx context.Context, after uint64) (now uint64, err error) {
	if err = errNoMember; g.isNode {
		now, err = g.client.AwaitLists(ctx, after)
	}
	return now, fault("await change", "", err)
}

// Addr is the address that other members dial to reach this node.
func (n *Node) Addr() string { return n.cfg.Advertise }

// Status returns the node's current view. It does not block.
func (n *Node) Status() Status {
	s := n.member.Status()
	status := Status{
		ID: n.id, Name: s.Name, Group: n.cfg.Group,
		Redundancy: s.Redundancy, Reconciling: n.app.names.Text(s.Plan),
		Leader: MemberID(s.Leader), Term: s.Term, Commit: s.Commit, Applied: s.Applied, FeatureLevel: s.Status.Level,
	}
	for _, m := range s.Members {
		member := memberOf(m)
		if member.ID == n.id {
			status.Role = member.Role
		}
		status.Members = append(status.Members, member)
	}
	return status
}

func memberOf(p cluster.Peer) Member {
	m := Member{ID: MemberID(p.ID), Name: p.Name, Addr: p.Addr, Role: Standby, Alive: p.Alive, Lag: p.Lag, LastContact: p.Silence,
		Build: p.Build, FeatureLevel: p.Level, LeaderPriority: int(p.Priority), PriorityKnown: p.PriorityKnown}
	if p.Voter {
		m.Role = Voter
	}
	return m
}

// member returns the member of that ID; one that is not listed has the ID only.
func (s Status) member(id MemberID) Member {
	for _, m := range s.Members {
		if m.ID == id {
			return m
		}
	}
	return Member{ID: id}
}

func (n *Node) status(context.Context) (Status, error) { return n.Status(), nil }

// MemberReport is what a member knows of its group by itself, or why it does not answer.
type MemberReport struct {
	Addr string // that was dialed
	// Err is why the member has not answered; nil: it has, and the rest of the report is set. An error with a method
	// Timeout that returns true means that nothing has answered in time: the member, or the name service before it. If ctx
	// left too little time for an answer, that wraps ctx's error.
	Err    error
	Status Status
	Health Health // Reasons is nil if the member runs a build that does not report it to clients
}

// Leaderless returns why the member has no leader, and what to do, for people; "": it has one, or awaits an election.
func (r *MemberReport) Leaderless() string {
	for _, c := range r.Health.Reasons {
		if c.Name == "leader" {
			return c.Text
		}
	}
	if r.Status.Leader == 0 {
		return "it knows no leader, and runs a build that does not report why"
	}
	return ""
}

// Inspect asks members of a group what each knows of it by itself: the one at each of cfg.Addresses, and then those at
// the addresses that the first ones state. It needs no quorum and no registration, so it shows why [Dial] or [Open]
// waits. It blocks until each address has answered or failed, for which it has 2.5 seconds with the lookup of a name, or
// ctx is done, which ends the attempts. The reports are in the order of the addresses.
//
// What a member knows may be out of date, also who leads: Status.Members[].Alive is its failure detector's view, and
// Health.Contact says when it has heard the leader. To read keys or locks without a quorum, dial with
// [ClientConfig.ReadOnly], and read with [Stale].
//
// The connections are those of clients, with cfg.TLS, cfg.VerifyPeer and cfg.Dial; each member's VerifyPeer decides on
// them. Errors: ErrInvalid with every fault of cfg at once, and ctx's if it was done before the call.
func Inspect(ctx context.Context, cfg *ClientConfig) ([]MemberReport, error) {
	checked, err := cfg.withDefaults()
	if err = cmp.Or(err, contextError(ctx)); err != nil {
		return nil, fault("inspect", "", err)
	}
	app := newApplication(checked.Logger)
	defer app.failed() // it waits for functions of the application as after a Dial that has failed
	access := remote.Config{
		Addresses: checked.Addresses, Group: checked.Group, Name: checked.Name, TLS: checked.TLS, Insecure: checked.Insecure,
		Dial: app.calls.Dial(checked.Dial), Calls: app.calls, Admit: app.verifyPeer(checked.VerifyPeer), Logger: app.log,
	}
	reports, err := inspect(ctx, access)
	if err != nil {
		return nil, fault("inspect", "", fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	if access.Addresses = unasked(checked.Addresses, reports); len(access.Addresses) > 0 {
		further, _ := inspect(ctx, access) // the settings are those of before
		reports = append(reports, further...)
	}
	return reports, nil
}

func inspect(ctx context.Context, access remote.Config) (reports []MemberReport, err error) {
	found, err := remote.Inspect(ctx, access, kindStatus, kindHealth)
	for _, f := range found {
		r := MemberReport{Addr: f.Addr, Err: convert(f.Err)}
		for kind, to := range map[string]any{kindStatus: &r.Status, kindHealth: &r.Health} { // order: independent
			if answer, ok := f.Answers[kind]; ok && r.Err == nil {
				r.Err = json.Unmarshal(answer, to)
			}
		}
		reports = append(reports, r)
	}
	return reports, err
}

// maxStated bounds the addresses that are tried because members state them.
const maxStated = 32

// unasked returns the addresses of members, as others state them, that have not been asked.
func unasked(asked []string, reports []MemberReport) (addresses []string) {
	answered := func(id MemberID) bool {
		return slices.ContainsFunc(reports, func(r MemberReport) bool { return r.Err == nil && r.Status.ID == id })
	}
	for _, r := range reports {
		for _, m := range r.Status.Members {
			if !slices.Contains(asked, m.Addr) && !slices.Contains(addresses, m.Addr) && !answered(m.ID) &&
				len(addresses) < maxStated && len(validateAddress("", m.Addr, true, true)) == 0 {
				addresses = append(addresses, m.Addr)
			}
		}
	}
	return addresses
}
