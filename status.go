package conclave

import "fmt"

// MemberID is a member's identity, given at its first start and never reused.
type MemberID uint64

// String prints the ID as 16 hexadecimal digits.
func (id MemberID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Role says what a member does in the group.
type Role int

const (
	// Voter: the member votes; a majority of voters decides.
	Voter Role = iota + 1
	// Standby: the member has the state and does not vote.
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

// Member is a member of the group as this node sees it.
type Member struct {
	ID    MemberID
	Name  string
	Addr  string // where it was last seen
	Role  Role
	Alive bool // gossip says that it answers; not an authority
}

// Status is what a node knows at one moment. It may be old by the time that it
// is looked at.
type Status struct {
	ID      MemberID
	Name    string
	Role    Role
	Leader  MemberID // 0: none is known
	Term    uint64   // of Raft
	Commit  uint64   // index of the last entry agreed
	Applied uint64   // index of the last entry applied here
	Members []Member // by ID, this one included
}

// Addr is the address that others dial to reach this node.
func (n *Node) Addr() string { return n.cfg.Advertise }

// Status says what the node knows at the moment. It does not block.
func (n *Node) Status() Status {
	s := n.member.Status()
	status := Status{
		ID: n.id, Name: s.Name,
		Leader: MemberID(s.Leader), Term: s.Term, Commit: s.Commit, Applied: s.Applied,
	}
	for _, m := range s.Members {
		member := Member{ID: MemberID(m.ID), Name: m.Name, Addr: m.Addr, Role: Standby, Alive: m.Alive}
		if m.Voter {
			member.Role = Voter
		}
		if member.ID == n.id {
			status.Role = member.Role
		}
		status.Members = append(status.Members, member)
	}
	return status
}
