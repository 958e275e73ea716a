package conclave

import (
	"context"
	"fmt"
	"strings"

	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
)

// DirInfo is what [Verify] found in a data directory.
type DirInfo struct {
	Dir     string
	Group   string   // name of the group
	Cluster string   // ID of the cluster; "" if the member has never belonged to a group
	Member  MemberID // whose directory it is
	Boots   uint64   // starts of the member
	Seed    bool     // of Restore or Recover, and no member has started on it yet

	// Removed and Diverged: Open refuses the directory, because the member was removed
	// from its group, or because its state differs from that of a majority.
	Removed, Diverged bool

	Term              uint64     // Raft term
	Applied           uint64     // index of the state on the disk
	Commit            uint64     // index of the last entry known to be committed
	Last              uint64     // index of the last entry
	LastTerm          uint64     // term of the last entry
	Voters, Standbys  []MemberID // as of Applied
	FeatureLevel      uint32     // the group's
	Keys, Sessions    int        // with the whole log applied, as are the following
	Locks, Semaphores int        // held, awaited or under a lock-delay; resized semaphores too
	Fence             Fence      // the largest granted; 0: none

	Groups []DirGroup // the further groups, in the order of their creation
}

// DirGroup is what [Verify] found of a further group.
type DirGroup struct {
	Name    string
	Number  uint32
	Applied uint64 // index of the state on the disk; 0: the group has been created, and the member has not begun it
	// Of its log, as in DirInfo. Another directory may have more of one group, and less of another one.
	Commit, Last, LastTerm uint64
	// With the whole log applied, as in DirInfo.
	Keys, Sessions, Locks, Semaphores int
	Fence                             Fence
}

// Uncertain returns how many entries are not known to be committed. The group may have
// acknowledged them, or replaced them by others. [Recover] applies them.
func (i DirInfo) Uncertain() uint64 { return i.Last - min(i.Last, i.Commit) }

// Epoch returns the number of recoveries of the group.
func (i DirInfo) Epoch() uint16 { return uint16(uint64(i.Fence) >> 48) }

// String describes the directory for people, in several lines.
func (i DirInfo) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("directory  %s", i.Dir)
	line("member     %v of group %q, started %d times", i.Member, i.Group, i.Boots)
	if i.Cluster == "" {
		line("cluster    none: the member has never belonged to a group")
		return b.String()
	}
	line("cluster    %s, voters %v, standbys %v", i.Cluster, i.Voters, i.Standbys)
	line("state      feature level %d, %d keys, %d sessions, %d locks, %d semaphores, largest fence %v",
		i.FeatureLevel, i.Keys, i.Sessions, i.Locks, i.Semaphores, i.Fence)
	line("log        applied %d, committed %d, last %d of term %d, current term %d", i.Applied, i.Commit, i.Last, i.LastTerm, i.Term)
	if n := i.Uncertain(); n > 0 {
		line("           %d entries are not known to be committed here", n)
	}
	for _, g := range i.Groups {
		line("group      %s: %d keys, %d sessions, %d locks, %d semaphores, largest fence %v; log applied %d, committed %d, last %d of term %d",
			quote(g.Name), g.Keys, g.Sessions, g.Locks, g.Semaphores, g.Fence, g.Applied, g.Commit, g.Last, g.LastTerm)
	}
	for text, holds := range map[string]bool{ // one of them at most
		"seed       no member has started on it yet":                    i.Seed,
		"removed    the member was removed from the group":              i.Removed,
		"diverged   the member's state differs from that of a majority": i.Diverged && !i.Removed,
	} {
		if holds {
			line("%s", text)
		}
	}
	return b.String()
}

// Verify reads a data directory on which no member runs, checks it, and reports what it
// is. It verifies the checksums of all entries and of the state, loads the state and
// applies the log to it, in memory. In the directory it changes nothing but the lock
// file, which it holds meanwhile; the start of a member is not counted.
//
// How much a member may have missed of its group, its directory alone does not tell: all
// that the others acknowledged after its last entry. Compare the directories of several
// members: the one with the highest LastTerm, and among equal ones the highest Last, has
// all that a majority acknowledged, if one of them was part of it. Each further group has a log of its own: which directory
// has all of it, its DirGroup tells in the same way.
//
// Errors: ErrInvalid for a directory that a Restore left unfinished, or without a path;
// ErrCorrupt if it is damaged, or has lost entries that it acknowledged;
// ErrUpgradeRequired if a newer build wrote it; one that says so, and wraps none of this
// package's, if it is in use or not a data directory; those of the file system.
func Verify(dir string) (DirInfo, error) {
	info := DirInfo{Dir: dir}
	err := offline(context.Background(), "verify", dir, func(o cluster.Offline) error {
		facts, err := cluster.Verify(o)
		if err == nil {
			info.fill(facts)
		}
		return err
	})
	return info, err
}

func (i *DirInfo) fill(f cluster.DirFacts) {
	id := f.Identity
	i.Group, i.Member, i.Boots, i.Removed, i.Diverged = id.GetGroup(), MemberID(id.GetMember()), id.GetBoot(), id.GetRemoved(), f.Divergence != nil
	if cluster, ok := wire.IDFrom(id.GetCluster()); ok {
		i.Cluster, i.Seed = cluster.String(), i.Boots == 0
	}
	i.Term, i.Applied, i.Commit, i.Last, i.LastTerm = f.Term, f.Applied, f.Commit, f.Last, f.LastTerm
	i.Voters, i.Standbys = memberIDs(f.ConfState.GetVoters()), memberIDs(f.ConfState.GetLearners())
	s := f.Machine.(*machine.Machine).Summary()
	i.FeatureLevel, i.Keys, i.Sessions, i.Locks, i.Semaphores, i.Fence = s.Level, s.Keys, s.Sessions, s.Locks, s.Semaphores, Fence(s.Fence)
	for _, g := range f.Groups {
		s := g.Machine.(*machine.Machine).Summary()
		i.Groups = append(i.Groups, DirGroup{
			Name: g.Name, Number: g.Number, Applied: g.Applied, Commit: g.Commit, Last: g.Last, LastTerm: g.LastTerm,
			Keys: s.Keys, Sessions: s.Sessions, Locks: s.Locks, Semaphores: s.Semaphores, Fence: Fence(s.Fence),
		})
	}
}

func memberIDs(ids []uint64) []MemberID {
	list := make([]MemberID, len(ids))
	for i, id := range ids {
		list[i] = MemberID(id)
	}
	return list
}
