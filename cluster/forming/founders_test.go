package forming

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/identity"
	"github.com/conclave-go/conclave/cluster/roster"
	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/machine"
	"github.com/conclave-go/conclave/internal/memdisk"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// founder is a member that forms a group: the production code over a disk that can
// fail, with calls instead of a transport.
type founder struct {
	*Former
	port       *founderPort
	store      *storage.Store
	founders   *founders
	n          int
	disk       *memdisk.Disk
	saves      int    // after so many the disk fails; 0: it does not
	build      uint32 // the highest feature level that it supports; 0: a build that forms groups at level 1 only
	up         bool
	attempting bool
}

// founders is a set of founders with the faults of the search and the network.
type founders struct {
	t         *testing.T
	rng       *rand.Rand
	expect    int
	founders  []*founder
	faulty    bool
	depth     int // of faults during other faults
	sent      []*wire.FormRequest
	proposals map[string]*wire.Proposal // by cluster
	digests   map[string]uint64         // of first states, by cluster
	builds    []uint32                  // with which a founder starts, any of them; empty: the newest
	clusters  map[uint64][]byte         // by member
	touched   func(errorfs.Op) error    // if not nil, called with each operation on a disk, on any goroutine
}

func newFounders(t *testing.T, seed uint64, n, expect int, builds ...uint32) *founders {
	cryptotest.SetGlobalRandom(t, seed)
	v := &founders{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), expect: expect,
		proposals: make(map[string]*wire.Proposal), clusters: make(map[uint64][]byte),
		builds: builds,
	}
	for i := range n {
		v.founders = append(v.founders, &founder{founders: v, n: i, disk: memdisk.New()})
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

// inject fails the disk after a save.
func (f *founder) inject(op errorfs.Op) error {
	if f.founders.touched != nil {
		return f.founders.touched(op)
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

// start starts the member like Start, up to forming.
func (f *founder) start() {
	t := f.founders.t
	store, err := storage.Open(storage.Options{FS: errorfs.Wrap(f.disk, errorfs.InjectorFunc(f.inject)), Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(log, "founders")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Expect: f.founders.expect, Voters: 3, Level: cmp.Or(f.chooseBuild(id.Get()), wire.FeatureLevel), FirstState: machine.FirstState,
		Identity: id, Log: log, Logger: slog.New(slog.DiscardHandler), Lifetime: t.Context(),
	}
	meta := func(cfg *Config) *wire.GossipMeta {
		return &wire.GossipMeta{
			Version: wire.GossipVersion, Cluster: id.Get().GetCluster(), Member: id.Member, Boot: id.Get().GetBoot(), Name: f.addr(), Advertise: f.addr(),
			Expect: uint32(cfg.Expect), Voters: uint32(cfg.Voters), Key: id.Public(), FeatureLevel: cfg.Level,
		}
	}
	cfg.Meta = func() *wire.GossipMeta { return meta(&cfg) }
	cfg.Admit = func(*wire.GossipMeta, bool) *wire.FormReply {
		return &wire.FormReply{Member: id.Member, Candidate: cfg.Meta(), Refusal: "it admits none in these tests"}
	}
	if cfg.Roster, err = roster.Load(log, cfg.Meta(), func() []byte { return id.Get().GetCluster() }); err != nil {
		t.Fatal(err)
	}
	port := new(founderPort)
	cfg.Port = port
	m := New(cfg)
	m.cfg.Meta = func() *wire.GossipMeta { return meta(&m.cfg) } // which tests change
	port.form = func(_ context.Context, to transport.Target, r *wire.FormRequest) (*wire.FormReply, error) {
		return f.send(m, to.Addr, proto.CloneOf(r))
	}
	f.Former, f.port, f.store, f.up, f.attempting = m, port, store, true, false
	f.readAccepted()
	f.founders.check()
}

// crash is a power loss of the founder.
func (f *founder) crash() {
	f.up, f.saves = false, 0
	old := f.disk
	f.disk = memdisk.On(old.CrashClone(vfs.CrashCloneCfg{}))
	_ = f.store.Close() // on the old disk
}

var errLost = errors.New("lost")

// founderPort is the port of one process of a founder.
type founderPort struct {
	form func(context.Context, transport.Target, *wire.FormRequest) (*wire.FormReply, error)
}

func (p *founderPort) Joined(wire.ID)       {}
func (p *founderPort) Resolves(string) bool { return false }
func (p *founderPort) Resolve(context.Context, string) ([]transport.Target, error) {
	return nil, errLost
}

func (p *founderPort) Form(ctx context.Context, to transport.Target, r *wire.FormRequest) (*wire.FormReply, error) {
	return p.form(ctx, to, r)
}

// send sends a proposal to a founder, unless it is lost. Other founders run meanwhile.
func (f *founder) send(m *Former, addr string, r *wire.FormRequest) (*wire.FormReply, error) {
	v := f.founders
	f.encoded(r)
	v.sent = append(v.sent, r)
	v.proposals[string(r.GetProposal().GetCluster())] = r.GetProposal()
	v.interleave()
	to := v.founders[slices.IndexFunc(v.founders, func(o *founder) bool { return o.addr() == addr })]
	if f.Former != m || !f.up || !to.up || v.faulty && v.rng.IntN(5) == 0 {
		return nil, errLost
	}
	reply := to.receive(r)
	v.interleave()
	if f.Former != m || !f.up || v.faulty && v.rng.IntN(5) == 0 {
		return nil, errLost
	}
	return reply, nil
}

func (v *founders) interleave() {
	if v.depth++; v.faulty && v.depth < 4 {
		for range v.rng.IntN(3) {
			v.fault()
			v.check()
		}
	}
	v.depth--
}

// meets replaces what the search has found: all or some of the founders that run.
func (f *founder) meets(all bool) {
	f.candidates.forget()
	for _, other := range f.founders.founders {
		if other != f && other.up && (all || f.founders.rng.IntN(4) > 0) {
			f.candidates.find(other.stated())
		}
	}
}

func (c *candidates) forget() { clear(c.places) }

// find notes a process as if it had answered at its address.
func (c *candidates) find(meta *wire.GossipMeta) {
	c.places[meta.GetAdvertise()] = &place{found: meta}
}

// attempt is one round of findGroup.
func (f *founder) attempt() {
	if !f.cfg.Identity.Cluster().IsZero() || f.attempting {
		return // it has a group, or is forming one
	}
	m := f.Former
	f.attempting = true
	_, err := m.form(context.Background())
	if f.Former != m {
		return // it has crashed meanwhile
	}
	f.attempting = false
	if err != nil && f.up {
		f.founders.t.Fatal(err)
	}
}

// check fails the test if two groups share a founder, or a group was formed without the
// acceptance of a founder.
func (v *founders) check() {
	v.t.Helper()
	for _, f := range v.founders {
		if !f.up {
			continue
		}
		cluster := f.cfg.Identity.Get().GetCluster()
		before := v.clusters[f.cfg.Identity.Member]
		if before != nil && !bytes.Equal(before, cluster) {
			v.t.Fatalf("founder %d: cluster %x has become %x", f.n, before, cluster)
		}
		if len(cluster) > 0 {
			v.clusters[f.cfg.Identity.Member] = cluster
			v.checkFirstState(f, string(cluster))
		}
	}
	for _, cluster := range v.clusters {
		for _, founder := range v.proposals[string(cluster)].GetFounders() {
			if other := v.clusters[founder.GetMember()]; other != nil && !bytes.Equal(other, cluster) {
				v.t.Fatalf("member %v is a founder of %x and of %x", wire.MemberID(founder.GetMember()), cluster, other)
			}
			for _, f := range v.founders {
				if record := f.recordIfUp(); record.GetMember() == founder.GetMember() &&
					!bytes.Equal(record.GetCluster(), cluster) && !bytes.Equal(record.GetAccepted().GetCluster(), cluster) {
					v.t.Fatalf("%x is formed without the acceptance of founder %d", cluster, f.n)
				}
			}
		}
	}
}

func (f *founder) recordIfUp() *wire.Identity {
	if !f.up {
		return nil
	}
	return f.cfg.Identity.Get()
}

// fault injects a random fault.
func (v *founders) fault() {
	f := v.founders[v.rng.IntN(len(v.founders))]
	switch v.rng.IntN(12) {
	case 0:
		f.crash()
	case 1:
		f.saves = 1 + v.rng.IntN(3)
	case 2, 3: // a request is repeated much later
		if len(v.sent) > 0 && f.up {
			f.receive(v.sent[v.rng.IntN(len(v.sent))])
		}
	default:
		if !f.up {
			f.crash()
			f.start()
			return
		}
		f.meets(false)
		f.attempt()
	}
}

// settle ends all faults and lets the founders find each other.
func (v *founders) settle() {
	v.faulty = false
	for range 50 {
		for _, f := range v.founders {
			if f.saves = 0; !f.up {
				f.crash()
				f.start()
			}
			f.meets(true)
			f.attempt()
			v.check()
		}
	}
}

// ungrouped counts the founders without a group.
func (v *founders) ungrouped() (n int) {
	for _, f := range v.founders {
		if f.cfg.Identity.Cluster().IsZero() {
			n++
		}
	}
	return n
}
