package cluster

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// villageOn is a village of founders on disks that there are, none of them
// started yet.
func villageOn(t *testing.T, disks []*vfs.MemFS) *village {
	v := &village{
		t: t, rng: rand.New(rand.NewPCG(1, 0)), expect: len(disks),
		proposals: make(map[string]*wire.Proposal), clusters: make(map[uint64][]byte),
	}
	for i, disk := range disks {
		v.founders = append(v.founders, &founder{village: v, n: i, disk: disk})
	}
	t.Cleanup(func() {
		for _, f := range v.founders {
			if f.Member != nil {
				f.crash()
			}
		}
	})
	return v
}

func emptyDisks(n int) (disks []*vfs.MemFS) {
	for range n {
		disks = append(disks, vfs.NewCrashableMem())
	}
	return disks
}

// meet lets the founders look for each other for some rounds.
func (v *village) meet(c *cuts) {
	for range 3 {
		for _, f := range v.founders {
			if f.up {
				f.hears(true)
				f.seek()
				v.check()
				c.note(v)
			}
		}
	}
}

// ruins are what a power cut for everybody leaves, and what was seen before.
type ruins struct {
	disks     []*vfs.MemFS
	clusters  map[uint64][]byte
	proposals map[string]*wire.Proposal
	sent      []*wire.FormRequest
}

// cuts cuts everybody's power before each operation on a disk, which may come
// on a goroutine of Pebble's.
type cuts struct {
	kept  int // percent of what is not synced
	disks []*vfs.MemFS

	mu   sync.Mutex // guards what follows
	over bool
	rng  *rand.Rand
	seen ruins // without disks
	all  []ruins
}

func (c *cuts) touched(op errorfs.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	left := c.seen
	left.disks = nil
	for _, disk := range c.disks {
		left.disks = append(left.disks, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.kept, RNG: c.rng}))
	}
	c.all = append(c.all, left)
	return nil
}

// note takes down what is known by now.
func (c *cuts) note(v *village) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = ruins{clusters: maps.Clone(v.clusters), proposals: maps.Clone(v.proposals), sent: slices.Clone(v.sent)}
}

// noteCalls has each request of a founder noted before it arrives.
func (c *cuts) noteCalls(v *village, f *founder) {
	put := f.forming.put
	f.forming.put = func(ctx context.Context, addr string, r *wire.FormRequest) (*wire.FormReply, error) {
		v.sent = append(v.sent, proto.CloneOf(r))
		v.proposals[string(r.GetProposal().GetCluster())] = r.GetProposal()
		c.note(v)
		return put(ctx, addr, r)
	}
}

func (c *cuts) end() []ruins {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.all
}

// formed checks that the founders are one group, all of them, also when every
// request that was ever sent arrives once more.
func (v *village) formed(t *testing.T) {
	t.Helper()
	v.settle()
	for _, r := range v.sent {
		for _, f := range v.founders {
			f.Form(r)
			v.check()
		}
	}
	first := v.founders[0]
	conf := first.raftLog
	for _, f := range v.founders {
		if f.identity.cluster().IsZero() || f.identity.cluster() != first.identity.cluster() {
			t.Errorf("founder %d is of cluster %s, the first of %s", f.n, f.identity.cluster(), first.identity.cluster())
		}
		if !f.raftLog.Bootstrapped() {
			t.Errorf("founder %d has no log", f.n)
		}
		_, want, _ := conf.InitialState()
		if _, got, err := f.raftLog.InitialState(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("founder %d begins with %v, the first with %v: %v", f.n, got, want, err)
		}
		if boot := f.identity.get().GetBoot(); boot < 1 {
			t.Errorf("founder %d has started %d times", f.n, boot)
		}
	}
}

// Everybody's power goes, before each operation on any founder's disk: in the
// making of the directories, of the identities, in proposing, accepting and
// founding. Those who start again form one group; and whoever had a group
// before has the same.
func TestFormingSurvivesAPowerCutAtEachOperation(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, kept := range []int{0, 100, 50} {
			t.Run(fmt.Sprintf("%d founders, %d%% of what is not synced kept", n, kept), func(t *testing.T) {
				cryptotest.SetGlobalRandom(t, 11)
				c := &cuts{kept: kept, disks: emptyDisks(n), rng: rand.New(rand.NewPCG(1, 1))}
				v := villageOn(t, c.disks)
				c.note(v)
				v.touched = c.touched
				for _, f := range v.founders {
					f.start()
					c.noteCalls(v, f)
				}
				v.meet(c)
				moments := c.end()
				v.formed(t)
				t.Logf("%d operations", len(moments))
				for i, m := range moments {
					again := villageOn(t, m.disks)
					again.clusters, again.proposals, again.sent = maps.Clone(m.clusters), maps.Clone(m.proposals), slices.Clone(m.sent)
					for _, f := range again.founders {
						f.start()
					}
					again.formed(t)
					for member, cluster := range m.clusters {
						if !bytes.Equal(again.clusters[member], cluster) {
							t.Errorf("member %x was of %x and is of %x", member, cluster, again.clusters[member])
						}
					}
					if t.Failed() {
						t.Fatalf("after a power cut at operation %d", i)
					}
				}
			})
		}
	}
}
