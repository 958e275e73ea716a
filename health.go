package conclave

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
)

// Health is a node's condition at one moment, for a supervisor that restarts processes
// and a load balancer that chooses among them. Package conclavehttp serves it.
type Health struct {
	// Live is false if the process should be restarted: the node has stopped, or its loop
	// hangs. It stays true without a quorum and with a slow disk. These often concern all
	// members at once, and a restart of all of them would make things worse.
	Live bool
	// Ready is true if the node is live and can serve: it is not being closed, belongs to
	// the group, is in contact with the leader, and has caught up with it.
	Ready bool
	// Redundancy is that of Status: how many more voters may fail; negative: the group has
	// no quorum.
	Redundancy int
	// Contact is how long ago this node has heard the leader, or the last one if none is known; 0 if it leads. The
	// state that [Stale] reads is at least that old. After a start it counts from then at most.
	Contact time.Duration
	// Reasons has every check, in an order that does not change.
	Reasons []HealthCheck
}

// HealthCheck is one of the checks that decide a node's Health. It is not a [Check], which
// is registered with the group.
type HealthCheck struct {
	Name string // "node", "loop", "shutdown", "member", "leader", "caught-up", "progress", "resources", "disk" or "groups"
	Live bool   // the check decides Health.Live as well as Health.Ready
	// Warning is set if the check decides neither: the node serves, and needs an operator soon.
	Warning bool
	OK      bool
	Text    string // what is wrong and what to do, for people; "" if OK
}

// minLoopStall is for how long the loop may hang, at least, before the node is not live. A
// group goes on without the member after a few election timeouts, so a late restart costs
// redundancy only. An early one would hit members that an overloaded host delays.
const minLoopStall = time.Minute

// Health returns the node's current condition. It does not block and asks no other member.
// It works also after the node has stopped. All but the check "groups" is about the default group.
func (n *Node) Health() Health {
	s := n.member.Health()
	h := Health{Live: true, Ready: true, Redundancy: s.Redundancy, Contact: s.Contact}
	stopped := cmp.Or(n.Err(), fault("run", n.cfg.Dir, s.Stopped))
	h.add("node", true, stopFault(stopped))
	for _, c := range []struct {
		name string
		live bool
		find func(*cluster.Health) string // what is wrong; "": nothing
	}{
		{"loop", true, n.loopFault},
		{"shutdown", false, n.shutdownFault},
		{"member", false, n.memberFault},
		{"leader", false, n.leaderFault},
		{"caught-up", false, n.lagFault},
		{"progress", false, n.progressFault},
		{"resources", false, n.resourceFault},
	} {
		text := "the node has stopped" // what it knew last is outdated
		if stopped == nil {
			text = c.find(&s)
		}
		h.add(c.name, c.live, text)
	}
	h.Reasons = append(h.Reasons, diskWarning(n.cfg.Dir, &s, stopped), n.groups.warning(stopped))
	return h
}

func (h *Health) add(name string, live bool, text string) {
	c := HealthCheck{Name: name, Live: live, OK: text == "", Text: text}
	h.Reasons = append(h.Reasons, c)
	h.Ready = h.Ready && c.OK
	h.Live = h.Live && (c.OK || !live)
}

// stopFault describes why a node has stopped.
func stopFault(stopped error) string {
	switch {
	case stopped == nil:
		return ""
	case errors.Is(stopped, ErrRemoved):
		return fmt.Sprintf("%v: start it with an empty directory, as a new member", stopped)
	case errors.Is(stopped, ErrUpgradeRequired):
		return fmt.Sprintf("%v: start a newer build", stopped)
	case errors.Is(stopped, ErrCorrupt):
		return fmt.Sprintf("%v: keep the directory for the investigation, and start with an empty one, as a new member", stopped)
	case errors.Is(stopped, ErrClosed):
		return stopped.Error()
	}
	return fmt.Sprintf("%v: remove the cause, then restart the process", stopped)
}

func (n *Node) loopFault(s *cluster.Health) string {
	if s.Idle <= max(minLoopStall, 10*n.cfg.ElectionTimeout) {
		return ""
	}
	return fmt.Sprintf("the member's loop hangs for %v: keep a goroutine profile for a bug report, then restart the process", s.Idle.Round(time.Second))
}

func (n *Node) shutdownFault(*cluster.Health) string {
	if n.client.Usable() == nil {
		return ""
	}
	return "the node is being closed"
}

func (n *Node) memberFault(s *cluster.Health) string {
	for _, m := range s.Members {
		if m.ID == s.ID {
			return ""
		}
	}
	return "this member does not belong to the group's configuration: if it is new, wait until the leader has added it; if it was removed, start it with an empty directory, as a new member"
}

// patience is for how long a member may be without contact to the leader, or behind it, and
// still be ready: a failover takes as long, and callers have to bear that anyway.
func (n *Node) patience() time.Duration { return 2 * n.cfg.ElectionTimeout }

func (n *Node) leaderFault(s *cluster.Health) string {
	var what string
	switch {
	case s.Leader == s.ID && s.Idle > n.patience():
		return fmt.Sprintf("this member leads, but its loop has not run for %v: the other members elect another leader; the process lacks CPU time, or was suspended",
			s.Idle.Round(time.Millisecond))
	case s.Contact <= n.patience() && (s.Leader != 0 || s.Redundancy >= 0): // an election may be under way
		return ""
	case s.Leader == 0:
		what = fmt.Sprintf("no leader has been known for %v", s.Contact.Round(time.Millisecond))
	default:
		what = fmt.Sprintf("leader %s has not been heard for %v", n.app.names.Text(MemberID(s.Leader).String()), s.Contact.Round(time.Millisecond))
	}
	what += fmt.Sprintf(": this member reaches %d of %d voters", s.Reachable, s.Voters)
	if s.Reachable > s.Voters/2 {
		what += ", a majority: wait for an election, or repair its network to the leader"
	} else {
		what += ", no majority: start the others, or repair its network to them"
	}
	if why := n.member.Unreachable(); why != "" {
		what += "; " + why
	}
	return what
}

func (n *Node) lagFault(s *cluster.Health) string {
	missing := uint64(0)
	if s.Reported > s.Applied {
		missing = s.Reported - s.Applied
	}
	var how []string
	if missing > replica.KeepEntries { // the leader decides, which may keep fewer if it is Small
		how = append(how, fmt.Sprintf("needs more than the %d entries that members keep", replica.KeepEntries))
	}
	if s.Behind > n.patience() {
		how = append(how, fmt.Sprintf("has been behind for %v", s.Behind.Round(time.Millisecond)))
	}
	switch {
	case len(how) > 0:
	case s.Regained:
		return fmt.Sprintf("this member hears the leader again and has not got what it missed: it has applied %d of %d entries known, and serves again when it has caught up",
			s.Applied, s.Reported)
	default:
		return ""
	}
	return fmt.Sprintf("this member has applied %d of %d entries and %s: it serves again when it has caught up; if it does not, look at its disk and network",
		s.Applied, s.Reported, strings.Join(how, " and "))
}

// progressFault finds what heartbeats and gossip do not show: a disk that does not answer.
func (n *Node) progressFault(s *cluster.Health) string {
	if s.Stalled <= n.patience() {
		return ""
	}
	stalled := s.Stalled.Round(time.Millisecond)
	if s.Leader == s.ID {
		return fmt.Sprintf("an entry has not been committed for %v, and no lock is granted before it is: look at the disks of this leader and of the other voters, and at the network to them", stalled)
	}
	return fmt.Sprintf("a write to this member's disk has been under way for %v, and it applies no entry before that ends: look at the disk", stalled)
}

// resourceFault finds what the process lacks, and not the disk. A restart would end its leases,
// and may not help if other processes use the descriptors up.
func (n *Node) resourceFault(s *cluster.Health) string {
	if s.Shortage == nil {
		return ""
	}
	return fmt.Sprintf("an access to the disk has waited for %v because the process lacks file descriptors or memory (%v), and what depends on it is not acknowledged before: close files or connections, or raise the limit (LimitNOFILE, ulimit -n)",
		s.Waited.Round(time.Millisecond), s.Shortage)
}

// diskWarning finds too little free space for the next logs, flush and compaction, before a write fails
// and stops the node. It only warns. The members of a group write the same, often to disks of the same
// size, so all of them are short at about the same time, while each can still serve: if that made them
// not ready, a load balancer would have no member left, before anything has failed.
func diskWarning(dir string, s *cluster.Health, stopped error) HealthCheck {
	c := HealthCheck{Name: "disk", Warning: true, OK: true}
	switch {
	case stopped != nil:
		c.OK, c.Text = false, "the node has stopped"
	case s.Space.Short():
		const mb = 1e6
		c.OK, c.Text = false, fmt.Sprintf("the disk of %s has %.1f MB left, and the next logs and tables of this member may take %.1f MB: it stops at the first write that does not fit: free space, or enlarge the disk",
			dir, float64(s.Space.Free)/mb, float64(s.Space.Needed)/mb)
	}
	return c
}

const (
	maxFaultyGroups = 3  // further groups that the check names
	maxFaultyName   = 40 // characters of each name that it shows
)

// warning finds further groups that this member cannot serve. It only warns: the node serves the others, and a load balancer
// that sends no traffic to nodes that are not ready would take it from the users of all groups, for the fault of one.
func (g *nodeGroups) warning(stopped error) HealthCheck {
	c := HealthCheck{Name: "groups", Warning: true, OK: stopped == nil}
	if stopped != nil {
		c.Text = "the node has stopped"
		return c
	}
	running := g.running()
	var faulty []faultyGroup
	for _, f := range running {
		s, h := f.replica.Health()
		if fault := groupFault(s, &h, uint64(g.node.id), g.node.patience()); fault != "" {
			faulty = append(faulty, faultyGroup{f.name, f.number, fault})
		}
	}
	c.Text = groupsFault(faulty, len(running))
	c.OK = c.Text == ""
	return c
}

// groupFault finds what keeps a replica of a further group from serving for longer than patience, as the checks of the default group do.
func groupFault(s *replica.Status, h *replica.Health, self uint64, patience time.Duration) string {
	for _, c := range []struct {
		applies bool
		what    string
		since   time.Duration
	}{
		{true, "has a loop that has not run", h.Idle},
		{s.Leader == 0, "has no known leader", h.Contact},
		{true, "has not heard its leader", h.Contact},
		{s.Leader == self, "has an entry that is not committed", s.Stalled},
		{true, "has a write to this member's disk under way", s.Stalled},
		{true, "is behind its leader", h.Behind},
	} {
		if c.applies && c.since > patience {
			return fmt.Sprintf("%s for %v", c.what, c.since.Round(time.Millisecond))
		}
	}
	return ""
}

// faultyGroup is a further group with what is wrong.
type faultyGroup struct {
	name   string
	number uint32
	fault  string
}

// groupsFault describes the groups of those that run in which something is wrong.
func groupsFault(faulty []faultyGroup, running int) string {
	if len(faulty) == 0 {
		return ""
	}
	var named []string
	for _, f := range faulty[:min(len(faulty), maxFaultyGroups)] {
		named = append(named, fmt.Sprintf("group %.*q (number %d) %s", maxFaultyName, f.name, f.number, f.fault))
	}
	if more := len(faulty) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("this member cannot serve %d of %d further groups: %s: if it serves the default group, look at them on the other members (Node.Groups, Node.Metrics), and at the log lines with these numbers",
		len(faulty), running, strings.Join(named, ", "))
}
