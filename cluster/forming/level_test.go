package forming

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// A build that forms groups at level 1 only is the present one, and this between it and the others:
// it neither states a level nor sees that of a proposal, and sends on what it does not know.

// chooseBuild chooses with which build the founder starts. A record of a later version is
// not read by the oldest one.
func (f *founder) chooseBuild(record *wire.Identity) uint32 {
	v := f.founders
	if f.build = wire.FeatureLevel; len(v.builds) > 0 {
		f.build = v.builds[v.rng.IntN(len(v.builds))]
	}
	if record.GetVersion() > wire.IdentityBase && f.build == 0 {
		f.build = wire.FeatureLevel
	}
	return max(f.build, lowestLevel)
}

// readAccepted has the founder find the level of the proposal that the oldest build has accepted.
func (f *founder) readAccepted() {
	p := f.cfg.Identity.Get().GetAccepted()
	if sent := f.founders.proposals[string(p.GetCluster())]; f.build > 0 && p.GetFeatureLevel() != sent.GetFeatureLevel() {
		if err := f.cfg.Identity.Save(func(r *wire.Identity) { r.Accepted.FeatureLevel = sent.GetFeatureLevel() }); err != nil && f.up {
			f.founders.t.Fatal(err)
		}
	}
}

// stated is what the founder states about itself.
func (f *founder) stated() *wire.GossipMeta {
	meta := f.cfg.Meta()
	if f.build == 0 {
		meta.FeatureLevel = 0
	}
	return meta
}

// encoded makes a request of the founder what its build sends.
func (f *founder) encoded(r *wire.FormRequest) {
	if f.build > 0 {
		return
	}
	r.Candidate.FeatureLevel = 0
	if sent := f.founders.proposals[string(r.GetProposal().GetCluster())]; sent != nil {
		r.Proposal.FeatureLevel = sent.GetFeatureLevel()
	}
}

// receive has the founder answer a request as its build does.
func (f *founder) receive(r *wire.FormRequest) *wire.FormReply {
	if f.build > 0 {
		return f.Answer(proto.CloneOf(r))
	}
	r = proto.CloneOf(r)
	if r.Candidate.FeatureLevel = 1; r.GetProposal() != nil {
		r.Proposal.FeatureLevel = 0
	}
	reply := f.Answer(r)
	reply.Candidate.FeatureLevel = 0
	return reply
}

// checkFirstState fails the test if the founders of a group have begun with different states.
func (v *founders) checkFirstState(f *founder, cluster string) {
	v.t.Helper()
	digest := f.cfg.Log.Applied().Digest
	if first, ok := v.digests[cluster]; ok && first != digest {
		v.t.Fatalf("founder %d of build %d begins with the state %x, another one of %x with %x", f.n, f.build, digest, cluster, first)
	}
	if v.digests == nil {
		v.digests = make(map[string]uint64)
	}
	v.digests[cluster] = digest
}

// Founders of several builds, that start again with others, form one group with one state.
func TestForming_BuildsChange(t *testing.T) {
	for seed := range seeds(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := 3 + int(seed%3)
			v := newFounders(t, seed, n, 2+int(seed%2), 0, 2, wire.FeatureLevel, wire.FeatureLevel)
			v.faulty = true
			for range 60 {
				v.fault()
				v.check()
			}
			v.upgrade()
			v.settle()
			if len(v.clusters) == 0 {
				t.Errorf("%d founders without a group, %d can form one", v.ungrouped(), v.expect)
			}
		})
	}
}

// upgrade starts each founder with the newest build.
func (v *founders) upgrade() {
	v.builds = nil
	for _, f := range v.founders {
		f.crash()
		f.start()
	}
}

// A group begins at the highest level that all its founders state, and at level 1 if one states none.
func TestForming_Level(t *testing.T) {
	for _, row := range []struct {
		builds []uint32
		want   uint32
	}{
		{[]uint32{wire.FeatureLevel}, wire.FeatureLevel},
		{[]uint32{3}, 3},
		{[]uint32{wire.FeatureLevel, wire.FeatureLevel, wire.FeatureLevel}, wire.FeatureLevel},
		{[]uint32{wire.FeatureLevel, 4, 5}, 4},
		{[]uint32{wire.FeatureLevel, 1, wire.FeatureLevel}, 1},
		{[]uint32{wire.FeatureLevel, 0, wire.FeatureLevel}, 1},
		{[]uint32{0, 0, wire.FeatureLevel}, 1},
	} {
		for turn := range row.builds { // which of them has the lowest ID
			builds := slices.Concat(row.builds[turn:], row.builds[:turn])
			t.Run(fmt.Sprint(builds), func(t *testing.T) {
				v := newFounders(t, 9, len(builds), len(builds))
				for i, f := range v.founders {
					v.builds = builds[i : i+1]
					f.crash()
					f.start()
				}
				v.builds = nil
				v.settle()
				if v.ungrouped() > 0 {
					t.Fatalf("%d founders without a group", v.ungrouped())
				}
				for _, f := range v.founders {
					m, err := raftlog.Load(f.cfg.Log, machine.Load)
					if err != nil {
						t.Fatal(err)
					}
					if level, _ := m.Level(); level != row.want || f.cfg.Identity.Get().GetVersion() != wire.IdentityBase {
						t.Errorf("founder %d begins at level %d, want %d; its identity has version %d", f.n, level, row.want, f.cfg.Identity.Get().GetVersion())
					}
				}
			})
		}
	}
}

// A proposal for a level beyond what a founder states is refused permanently, and an accepted one with
// a level is in a record that builds which do not heed it cannot read.
func TestForm_Level(t *testing.T) {
	v := newFounders(t, 1, 1, 2)
	f := v.founders[0]
	low, _ := strangers(f, 1)
	other := low[0]
	request := func(cluster byte, level, stated uint32) *wire.FormReply {
		p := proposal(cluster, 2, other, f.cfg.Meta())
		p.FeatureLevel = level
		found := proto.CloneOf(other)
		found.FeatureLevel = stated
		f.candidates.find(found)
		return f.Answer(&wire.FormRequest{Proposal: p, Candidate: found})
	}
	for cluster, row := range [][2]uint32{{wire.FeatureLevel + 1, wire.FeatureLevel + 1}, {4, 3}, {2, 0}} {
		if reply := request(byte(cluster+1), row[0], row[1]); reply.GetAccepted() || reply.GetFinal() != (row[1] > 0) || reply.GetRefusal() == "" {
			t.Errorf("level %d with a founder that states %d: %v", row[0], row[1], reply)
		}
	}
	if f.cfg.Identity.Get().GetVersion() != wire.IdentityBase {
		t.Errorf("the identity has version %d", f.cfg.Identity.Get().GetVersion())
	}
	if reply := request(9, 4, wire.FeatureLevel); !reply.GetAccepted() || reply.GetCandidate().GetFeatureLevel() != wire.FeatureLevel {
		t.Fatal(reply)
	}
	data, err := f.cfg.Log.Local(identity.Record)
	if err != nil {
		t.Fatal(err)
	}
	r := new(wire.Identity)
	if err := proto.Unmarshal(data, r); err != nil || r.GetVersion() != wire.IdentityVersion {
		t.Errorf("the record has version %d, %v", r.GetVersion(), err)
	}
	if _, err := identity.Decode(data); err != nil || errors.Is(err, storage.ErrNewer) {
		t.Errorf("it is not read: %v", err)
	}
	// The other founder returns with a build that does not heed the level, and with a later one.
	if reply := request(9, 4, 0); reply.GetAccepted() || reply.GetFinal() || f.accepted() == nil {
		t.Errorf("%v, accepted %v", reply, f.accepted())
	}
	if reply := request(9, 4, wire.FeatureLevel); !reply.GetAccepted() {
		t.Errorf("not accepted any more: %v", reply)
	}
}
