package conclave

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/machine"
)

// GroupInfo describes one of the groups, as [Node.Groups] lists them.
type GroupInfo struct {
	Name        string
	Number      uint32   // 0: the default group; no number is used again
	CreateIndex uint64   // index of its creation, in the default group
	Leader      MemberID // 0: this member knows none
	Term        uint64
	Applied     uint64     // index up to which this member has applied the group's log
	Voters      []MemberID // as far as this member knows
	// LastContact is how long ago this member has received a message from the leader of the group; 0 if it leads, or runs a build that does not
	// report it; negative: never, or it knows no leader. While a group has nothing to do its leader sends nothing, and that time does not count.
	LastContact time.Duration
}

// WithGroup returns a handle to a further group: one of that name that [Node.CreateGroup] has created, on the same members
// and with a log, a leader and limits of its own. The name of the default group, [Config.Group], returns that.
//
// A name in two groups is two locks. Sessions, fences, indexes, jobs, sets of locks, transactions and searches for deadlocks are
// of one group, and the methods of the handle concern its group only. The members and the settings are those of
// the default group: RemoveMember and SetGroupConfig return ErrInvalid, GroupConfig has its Voters and nothing else, and each group
// has checks of its own.
//
// WithGroup does not block, and a handle costs nothing. While the group does not exist its calls return ErrGroupNotFound,
// with no effect. A handle belongs to the group that it has reached: when that is deleted its calls always return ErrGroupNotFound,
// also after another group of that name was created. Ask for another handle then. All handles that a node returns for a name are of the
// group that it has reached last, until it has applied the deletion: after ErrGroupNotFound of a group that exists, CreateGroup returns a
// handle to that.
func (n *Node) WithGroup(name string) *Group {
	if name == n.cfg.Group {
		return n.Group
	}
	return n.groups.door(name).group
}

// CreateGroup creates a further group, unless there is one of that name, and returns a handle to it; see [Node.WithGroup]. It blocks until a
// majority of the group's voters has accepted this process, or ctx is done. The name is 1 to 512 bytes of UTF-8 without NUL. The group has the
// members and voters of the default group, and follows them, so cfg must be zero.
//
// Each group costs every member a goroutine for its log, and heartbeats while a process has a session in it; without one it soon
// costs next to nothing. One group is enough for most: create another one
// where its users must not wait for those of the first, or where one processor is not enough.
//
// Errors: ErrInvalid for the name or cfg; ErrTooLarge for the name; ErrBusy with 1,000 groups besides the default one; ErrUpgradeRequired while a member runs a build
// without groups; ErrTooLarge after 2^32 groups; ErrClosed; ctx's with ErrUnavailable, or with ErrUnknown if the
// group may be created; and ErrUnknown if another call deletes it at the same time. CreateGroup can be repeated.
func (n *Node) CreateGroup(ctx context.Context, name string, cfg GroupConfig) (*Group, error) {
	err := mayCreate(name, cfg)
	var f *furtherGroup
	if err == nil {
		f, err = n.groups.create(ctx, name)
	}
	switch {
	case err != nil:
		return nil, fault("create group", name, err)
	case f == nil:
		return n.Group, nil
	}
	return f.group, nil
}

// DeleteGroupOption configures [Node.DeleteGroup].
type DeleteGroupOption interface{ applyDeleteGroup(*deleteGroup) }

type deleteGroup struct{ force bool }

type deleteGroupOption func(*deleteGroup)

func (f deleteGroupOption) applyDeleteGroup(d *deleteGroup) { f(d) }

func forced(opts []DeleteGroupOption) bool {
	var d deleteGroup
	for _, o := range opts {
		o.applyDeleteGroup(&d)
	}
	return d.force
}

// Force deletes a group with all that it holds. Its holders notice by ErrGroupNotFound and Lost, those that are partitioned at their local deadline.
func Force() DeleteGroupOption {
	return deleteGroupOption(func(d *deleteGroup) { d.force = true })
}

// DeleteGroup deletes a further group permanently. It is refused with ErrLocked while the group holds a lock, permits, a leadership, a key, a job, a set
// of shards or a lock-delay, or a semaphore has a limit from [Semaphore.Resize], unless [Force] is given. Sessions that hold nothing end. No group of that
// name, or of another one, that is created later grants a fence of this one again.
//
// It blocks until this member has removed the group, or ctx is done. ErrGroupNotFound: there is none of that name. ErrInvalid: it is the default
// group. ErrUnknown with ctx's error: the group may be deleted later. ErrUnavailable with ctx's error, ErrClosed: no effect.
func (n *Node) DeleteGroup(ctx context.Context, name string, opts ...DeleteGroupOption) error {
	err := errNotDeleted
	if name != n.cfg.Group {
		err = n.groups.delete(ctx, func(v machine.GroupView) bool { return v.Name == name }, forced(opts))
	}
	return fault("delete group", name, err)
}

// Groups lists the groups, the default one first and the further ones in the order of their creation, with what this member knows of each.
// That the list is complete a quorum of the default group confirms; it blocks until then, or ctx is done. The sequence ends after an error: ErrUnavailable with ctx's
// error, or ErrClosed.
func (n *Node) Groups(ctx context.Context) iter.Seq2[GroupInfo, error] {
	return func(yield func(GroupInfo, error) bool) {
		listed, err := ask[[]machine.GroupView](ctx, n.Group, machine.GroupsQuery{})
		if err != nil {
			yield(GroupInfo{}, fault("list groups", "", err))
			return
		}
		if !yield(n.defaultInfo(), nil) {
			return
		}
		seen := make(map[uint32]GroupInfo)
		for _, g := range n.member.Groups().Status() {
			seen[g.Record.Number] = n.furtherInfo(g)
		}
		for _, v := range listed {
			info := seen[v.Number]
			info.Name, info.Number, info.CreateIndex = v.Name, v.Number, v.Created
			if !yield(info, nil) {
				return
			}
		}
	}
}

// GroupInfo returns what this member knows by itself of the group of that name, the default one or a further one. It asks no other
// member, and does not block. ok is false if this member knows no group of that name, or does not run its copy of it yet.
func (n *Node) GroupInfo(name string) (info GroupInfo, ok bool) {
	if name == n.cfg.Group {
		return n.defaultInfo(), true
	}
	for _, g := range n.member.Groups().Status() {
		if g.Record.Name == name && g.Status != nil {
			return n.furtherInfo(g), true
		}
	}
	return GroupInfo{}, false
}

func (n *Node) defaultInfo() GroupInfo {
	s := n.Status()
	info := GroupInfo{Name: n.cfg.Group, Leader: s.Leader, Term: s.Term, Applied: s.Applied, LastContact: -1}
	for _, m := range s.Members {
		if m.Role == Voter {
			info.Voters = append(info.Voters, m.ID)
		}
		if m.ID == s.Leader {
			info.LastContact = m.LastContact
		}
	}
	return info
}

// furtherInfo returns what is known of a further group: no more than its record while its replica does not run.
func (n *Node) furtherInfo(g cluster.GroupStatus) GroupInfo {
	info := GroupInfo{Name: g.Record.Name, Number: g.Record.Number, CreateIndex: g.Record.Created}
	if s := g.Status; s != nil {
		info.Leader, info.Term, info.Applied = MemberID(s.Leader), s.Term, s.Applied
		_, info.LastContact = s.Progress(uint64(n.id), s.Leader, n.cfg.HeartbeatInterval)
		for _, id := range s.Conf.GetVoters() {
			info.Voters = append(info.Voters, MemberID(id))
		}
	}
	return info
}

// runningGroup is a further group with a replica that runs.
type runningGroup struct {
	*furtherGroup
	number  uint32
	replica *replica.Replica
}

// running returns those with a replica that runs, by name.
func (g *nodeGroups) running() (list []runningGroup) {
	g.mu.Lock()
	for number, f := range g.used {
		if r := f.replica.Load(); r != nil {
			list = append(list, runningGroup{f, number, r})
		}
	}
	g.mu.Unlock()
	slices.SortFunc(list, func(a, b runningGroup) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.number, b.number))
	})
	return list
}
