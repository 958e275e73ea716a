package forming

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wire"
)

// Joining an existing group. A process that belongs to no group and has found a member of
// one, on a connection that proves both keys, asks that member to admit it:
//
//	1. The member submits AdmitMember, which makes the newcomer, with its key and address,
//	   a member in the machine's state.
//	2. The leader's reconciler adds it to Raft's configuration as a standby.
//	3. The member answers with the cluster ID and the group's members. The newcomer stores
//	   these, and starts with an empty log and no configuration, so it neither votes nor
//	   campaigns. The leader sends it a snapshot.
//
// Admission is idempotent, so a crash or a lost answer only delays.
//
// A process that has found a group at an address in Config.Join never forms one: it records
// the cluster that it has seen before it asks for admission, and refuses every proposal from
// then on. Of a process that has come by itself it remembers that only while it answers: a
// stranger could keep the founders from forming a group permanently.

// ErrTwoGroups: addresses in Config.Join belong to different groups.
var ErrTwoGroups = errors.New("the addresses belong to members of different groups of this name: " +
	"remove those of one group from Config.Join")

// formedGroup returns the members of an existing group that the search has found; an error if
// they belong to several.
func (f *Former) formedGroup() (members []*wire.GossipMeta, err error) {
	for _, meta := range f.candidates.processes() {
		if len(meta.GetCluster()) == 0 {
			continue
		}
		if len(members) > 0 && !bytes.Equal(members[0].GetCluster(), meta.GetCluster()) {
			return nil, fmt.Errorf("%w: %s at %s, and %s at %s", ErrTwoGroups,
				members[0].GetName(), members[0].GetAdvertise(), meta.GetName(), meta.GetAdvertise())
		}
		members = append(members, meta)
	}
	return members, nil
}

// joinGroup asks the members of the group that the search has found for admission. It reports
// whether this member has been admitted.
func (f *Former) joinGroup(ctx context.Context) (joined bool, err error) {
	members, err := f.formedGroup()
	if err != nil || len(members) == 0 || f.accepted() != nil {
		return false, nil //nolint:nilerr // waitReason returns it
	}
	if f.candidates.isConfigured(members[0].GetMember()) {
		if err := f.noteSeen(members[0].GetCluster()); err != nil {
			return false, err
		}
	}
	for _, meta := range members {
		to := transport.Target{Addr: meta.GetAdvertise(), Member: meta.GetMember(), Advertised: true}
		reply, err := f.cfg.Port.Form(ctx, to, &wire.FormRequest{Candidate: f.cfg.Meta(), Admit: true, Ephemeral: f.cfg.Ephemeral})
		switch {
		case err != nil:
			f.noteNotAdmitted(wire.FounderOf(meta), err.Error())
		case reply.GetAdmission() == nil:
			f.noteNotAdmitted(wire.FounderOf(meta), reply.GetRefusal())
		case !bytes.Equal(reply.GetAdmission().GetCluster(), meta.GetCluster()):
			f.noteNotAdmitted(wire.FounderOf(meta), "it admits to another cluster than its own")
		default:
			f.noteNotAdmitted(nil, "")
			return true, f.admitted(reply.GetAdmission())
		}
	}
	return false, nil
}

// noteSeen records that this process has found a group, so that it never forms one.
func (f *Former) noteSeen(cluster []byte) error {
	f.changing.Acquire()
	defer f.changing.Release()
	if len(f.cfg.Identity.Get().GetSeen()) > 0 {
		return nil
	}
	return f.cfg.Identity.Save(func(r *wire.Identity) { r.Seen = cluster })
}

// admitted makes this member a member of the group that has admitted it.
func (f *Former) admitted(a *wire.Admission) error {
	f.changing.Acquire()
	defer f.changing.Release()
	if cluster, ok := wire.IDFrom(a.GetCluster()); !ok || cluster.IsZero() {
		return errors.New("a member of the group has sent an admission without a cluster")
	}
	if len(a.GetEndorsements()) > identity.MaxEndorsements || !identity.VerifyLinks(a.GetCluster(), a.GetEndorsements(), f.cfg.Identity.Public()) {
		return errors.New("a member of the group has sent an admission with invalid endorsements")
	}
	for _, founder := range a.GetMembers() {
		if founder.GetMember() != f.cfg.Identity.Member {
			f.cfg.Roster.SetFounder(founder) // synced with the identity
		}
	}
	if err := f.cfg.Identity.Save(func(r *wire.Identity) {
		r.Cluster, r.Joined, r.Accepted, r.Refused = a.GetCluster(), true, nil, nil
		r.Endorsements = a.GetEndorsements()
	}); err != nil {
		return err
	}
	f.cfg.Logger.Info("admitted to the group", "cluster", f.cfg.Identity.Cluster(), "members", len(a.GetMembers()))
	return nil
}
