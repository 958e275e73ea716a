package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// founder is a member that looks for a group: the production code over a disk
// that can be cut off, and over calls instead of a port.
type founder struct {
	*Member
	village *village
	n       int
	disk    *vfs.MemFS
	saves   int // until the disk dies, right after that many; 0: it does not
	up      bool
	seeking bool
}

// village is where founders meet, and what gossip and the network do to them.
type village struct {
	t         *testing.T
	rng       *rand.Rand
	expect    int
	founders  []*founder
	troubled  bool
	depth     int // of troubles that happen while others go on
	sent      []*wire.FormRequest
	proposals map[string]*wire.Proposal // by cluster
	clusters  map[uint64][]byte         // by member
	touched   func(errorfs.Op) error    // nil, or told of what is done to the disks, on any goroutine
}

func newVillage(t *testing.T, seed uint64, n, expect int) *village {
	cryptotest.SetGlobalRandom(t, seed)
	v := &village{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), expect: expect,
		proposals: make(map[string]*wire.Proposal), clusters: make(map[uint64][]byte),
	}
	for i := range n {
		v.founders = append(v.founders, &founder{village: v, n: i, disk: vfs.NewCrashableMem()})
	}
	for _, f := range v.founders {
		f.start()
	}
	t.Cleanup(func() {
		for _, f := range v.founders {
			f.crash()
		}
	})
	return v
}

func (f *founder) addr() string { return fmt.Sprint("founder-", f.n) }

// died is the error of a disk that is gone after a save.
func (f *founder) died(op errorfs.Op) error {
	if f.village.touched != nil {
		return f.village.touched(op)
	}
	// Each synced write of the log ends with one to the watermark.
	if op.Kind != errorfs.OpFileWriteAt || filepath.Base(op.Path) != "WATERMARK" || f.saves == 0 {
		return nil
	}
	if f.saves--; f.saves > 0 {
		return nil
	}
	f.up = false
	return syscall.EIO
}

// start runs the member as Start does, as far as the forming goes.
func (f *founder) start() {
	t := f.village.t
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(f.disk, errorfs.InjectorFunc(f.died)), Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	m := &Member{
		cfg: Config{Name: f.addr(), Advertise: f.addr(), Expect: f.village.expect, Voters: 3},
		log: quiet, store: store,
		gossip: new(gossip),
	}
	m.forming.accepted = newSignal()
	m.forming.put = func(_ context.Context, addr string, r *wire.FormRequest) (*wire.FormReply, error) {
		return f.put(m, addr, proto.CloneOf(r))
	}
	if m.raftLog, err = raftlog.Open(store, groupNumber); err != nil {
		t.Fatal(err)
	}
	if m.identity, err = loadIdentity(m.raftLog, "village"); err != nil {
		t.Fatal(err)
	}
	if m.roster, err = loadRoster(m.raftLog, m.meta(), func() []byte { return m.identity.get().GetCluster() }); err != nil {
		t.Fatal(err)
	}
	f.Member, f.up, f.seeking = m, true, false
	f.village.check()
}

// crash cuts the power.
func (f *founder) crash() {
	f.up, f.saves = false, 0
	old := f.disk
	f.disk = old.CrashClone(vfs.CrashCloneCfg{})
	_ = f.store.Close() // on the old disk
}

var errLost = errors.New("lost")

// put carries a proposal to a founder, unless something happens to it. Meanwhile
// the others go on.
func (f *founder) put(m *Member, addr string, r *wire.FormRequest) (*wire.FormReply, error) {
	v := f.village
	v.sent = append(v.sent, r)
	v.proposals[string(r.GetProposal().GetCluster())] = r.GetProposal()
	v.meanwhile()
	to := v.founders[slices.IndexFunc(v.founders, func(o *founder) bool { return o.addr() == addr })]
	if f.Member != m || !f.up || !to.up || v.troubled && v.rng.IntN(5) == 0 {
		return nil, errLost
	}
	reply := to.Form(r)
	v.meanwhile()
	if f.Member != m || !f.up || v.troubled && v.rng.IntN(5) == 0 {
		return nil, errLost
	}
	return reply, nil
}

func (v *village) meanwhile() {
	if v.depth++; v.troubled && v.depth < 4 {
		for range v.rng.IntN(3) {
			v.trouble()
			v.check()
		}
	}
	v.depth--
}

// hears is what gossip says: some of those who are up, and ourselves.
func (f *founder) hears(all bool) {
	f.roster.forget()
	for _, other := range f.village.founders {
		if other == f || other.up && (all || f.village.rng.IntN(4) > 0) {
			meta := other.meta()
			f.roster.processAlive(processName(meta), meta)
		}
	}
}

// seek is one round of findGroup.
func (f *founder) seek() {
	if !f.identity.cluster().IsZero() || f.seeking {
		return // it has a group, and never forms another; or it is at it
	}
	m := f.Member
	f.seeking = true
	_, err := m.form(context.Background())
	if f.Member != m {
		return // it has died on the way
	}
	f.seeking = false
	if err != nil && f.up {
		f.village.t.Fatal(err)
	}
}

// check looks for two groups that share a founder, and for a group that somebody
// has founded without the others' word.
func (v *village) check() {
	v.t.Helper()
	for _, f := range v.founders {
		if !f.up {
			continue
		}
		cluster := f.identity.get().GetCluster()
		before := v.clusters[f.identity.member]
		if before != nil && !bytes.Equal(before, cluster) {
			v.t.Fatalf("founder %d was of cluster %x and is of %x", f.n, before, cluster)
		}
		if len(cluster) > 0 {
			v.clusters[f.identity.member] = cluster
		}
	}
	for _, cluster := range v.clusters {
		for _, founder := range v.proposals[string(cluster)].GetFounders() {
			if other := v.clusters[founder.GetMember()]; other != nil && !bytes.Equal(other, cluster) {
				v.t.Fatalf("member %x is founder of %x and of %x", founder.GetMember(), cluster, other)
			}
			for _, f := range v.founders {
				if record := f.recordIfUp(); record.GetMember() == founder.GetMember() &&
					!bytes.Equal(record.GetCluster(), cluster) && !bytes.Equal(record.GetAccepted().GetCluster(), cluster) {
					v.t.Fatalf("%x is founded, and founder %d has not accepted it", cluster, f.n)
				}
			}
		}
	}
}

func (f *founder) recordIfUp() *wire.Identity {
	if !f.up {
		return nil
	}
	return f.identity.get()
}

// trouble does something at random.
func (v *village) trouble() {
	f := v.founders[v.rng.IntN(len(v.founders))]
	switch v.rng.IntN(12) {
	case 0:
		f.crash()
	case 1:
		f.saves = 1 + v.rng.IntN(3)
	case 2, 3: // a request comes again, long after
		if len(v.sent) > 0 && f.up {
			f.Form(v.sent[v.rng.IntN(len(v.sent))])
		}
	default:
		if !f.up {
			f.crash() // what it has not synced is gone
			f.start()
			return
		}
		f.hears(false)
		f.seek()
	}
}

// settle heals everything and lets them find each other.
func (v *village) settle() {
	v.troubled = false
	for range 50 {
		for _, f := range v.founders {
			if f.saves = 0; !f.up {
				f.crash()
				f.start()
			}
			f.hears(true)
			f.seek()
			v.check()
		}
	}
}

// alone counts who has no group.
func (v *village) alone() (n int) {
	for _, f := range v.founders {
		if f.identity.cluster().IsZero() {
			n++
		}
	}
	return n
}

// However gossip, the network and the disks behave, no two groups share a
// founder; and once they behave, everybody finds a group who can.
func TestFormingIsAnAgreement(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := 3 + int(seed%3)
			v := newVillage(t, seed, n, 2+int(seed%2))
			v.troubled = true
			for range 60 {
				v.trouble()
				v.check()
			}
			v.settle()
			if n := v.alone(); n >= v.expect {
				t.Errorf("%d have found no group, and %d can form one", n, v.expect)
			}
		})
	}
}

// Three who find each other are one group, whatever save one of them dies after.
func TestFormingSurvivesACrashAtEachSave(t *testing.T) {
	for n := range 3 {
		for saves := 1; saves <= 4; saves++ {
			t.Run(fmt.Sprintf("founder %d, save %d", n, saves), func(t *testing.T) {
				v := newVillage(t, 7, 3, 3)
				v.founders[n].saves = saves
				for range 3 {
					for _, f := range v.founders {
						if f.up {
							f.hears(true)
							f.seek()
						}
					}
				}
				v.settle()
				if v.alone() > 0 || len(v.clusters) != 3 {
					t.Errorf("%d have found no group", v.alone())
				}
				for _, f := range v.founders {
					if conf := f.raftLog; !conf.Bootstrapped() {
						t.Errorf("founder %d has no log", f.n)
					}
				}
			})
		}
	}
}

func proposal(cluster byte, voters uint32, founders ...uint64) *wire.Proposal {
	p := &wire.Proposal{Cluster: bytes.Repeat([]byte{cluster}, 16), Voters: voters}
	for _, id := range founders {
		p.Founders = append(p.Founders, &wire.Founder{Member: id})
	}
	return p
}

// What a founder answers, one request after the other.
func TestFormAnswers(t *testing.T) {
	v := newVillage(t, 1, 1, 2)
	f := v.founders[0]
	id := f.identity.member
	good := proposal(1, 2, id, id+1)
	for _, step := range []struct {
		name            string
		p               *wire.Proposal
		accepted, final bool
	}{
		{"no cluster", &wire.Proposal{Founders: good.GetFounders(), Voters: 2}, false, false},
		{"too few founders", proposal(2, 1, id), false, true},
		{"too many founders", proposal(3, 2, id, id+1, id+2), false, true},
		{"founders out of order", proposal(4, 2, id+1, id), false, true},
		{"one founder twice", proposal(5, 2, id, id), false, true},
		{"others' group", proposal(6, 2, id+1, id+2), false, true},
		{"nobody votes", proposal(7, 0, id, id+1), false, true},
		{"more voters than founders", proposal(8, 3, id, id+1), false, true},
		{"in order", good, true, false},
		{"the same once more", good, true, false},
		{"the same cluster with other founders", proposal(1, 2, id, id+2), false, false},
		{"another one", proposal(9, 2, id, id+1), false, true},
		{"that one once more", proposal(9, 2, id, id+1), false, true},
		{"one refused before", proposal(2, 2, id, id+1), false, true},
	} {
		reply := f.Form(&wire.FormRequest{Proposal: step.p})
		if reply.GetAccepted() != step.accepted || reply.GetFinal() != step.final || reply.GetMember() != id {
			t.Errorf("%s: %v", step.name, reply)
		}
		f.crash()
		f.start() // every answer holds after a restart
	}
	if err := f.drop(good); err != nil {
		t.Fatal(err)
	}
	// It has no proposal now, and would accept any of these had it not refused
	// them, or dropped the first, for good: others rely on that.
	for cluster := byte(1); cluster <= 9; cluster++ {
		reply := f.Form(&wire.FormRequest{Proposal: proposal(cluster, 2, id, id+1)})
		if reply.GetAccepted() || !reply.GetFinal() {
			t.Errorf("proposal %d, refused before: %v", cluster, reply)
		}
	}
	other := proposal(10, 2, id, id+1)
	if reply := f.Form(&wire.FormRequest{Proposal: other}); !reply.GetAccepted() {
		t.Errorf("another one after the drop: %v", reply)
	}
	if err := f.found(other); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*wire.Proposal{good, proposal(11, 2, id, id+1)} {
		if reply := f.Form(&wire.FormRequest{Proposal: p}); reply.GetAccepted() || !reply.GetFinal() {
			t.Errorf("a member of a group: %v", reply)
		}
	}
	if reply := f.Form(&wire.FormRequest{Proposal: other}); !reply.GetAccepted() {
		t.Errorf("its own group: %v", reply)
	}
}

// A member refuses without end, but remembers only so many refusals; beyond
// them nobody may rely on it.
func TestFormRefusalsAreLimited(t *testing.T) {
	v := newVillage(t, 1, 1, 2)
	f := v.founders[0]
	for i := range maxRefused + 10 {
		p := proposal(0, 1, 1)
		p.Cluster[0], p.Cluster[1] = byte(i), 1
		reply := f.Form(&wire.FormRequest{Proposal: p})
		if reply.GetAccepted() || reply.GetFinal() != (i < maxRefused) {
			t.Fatalf("refusal %d: %v", i, reply)
		}
	}
}
