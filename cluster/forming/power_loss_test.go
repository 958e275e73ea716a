package forming

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

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/memdisk"
	"github.com/conclave-go/conclave/internal/wire"
)

// foundersOn returns founders on existing disks, none of them started.
func foundersOn(t *testing.T, disks []*vfs.MemFS) *founders {
	v := &founders{
		t: t, rng: rand.New(rand.NewPCG(1, 0)), expect: len(disks),
		proposals: make(map[string]*wire.Proposal), clusters: make(map[uint64][]byte),
	}
	for i, disk := range disks {
		v.founders = append(v.founders, &founder{founders: v, n: i, disk: memdisk.On(disk)})
	}
	t.Cleanup(func() {
		for _, f := range v.founders {
			if f.Former != nil {
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

// meet runs some rounds of forming.
func (v *founders) formRounds(c *powerLosses) {
	for range 3 {
		for _, f := range v.founders {
			if f.up {
				f.meets(true)
				f.attempt()
				v.check()
				c.note(v)
			}
		}
	}
}

// crashState is the state after a power loss of all founders, with the history before.
type crashState struct {
	disks     []*vfs.MemFS
	clusters  map[uint64][]byte
	proposals map[string]*wire.Proposal
	sent      []*wire.FormRequest
}

// powerLosses takes the state that a power loss of all founders would leave, before each
// operation on a disk, which may come on a goroutine of Pebble's.
type powerLosses struct {
	kept  int // percent of what is not synced
	disks []*memdisk.Disk

	mu   sync.Mutex // guards what follows
	over bool
	rng  *rand.Rand
	seen crashState // without disks
	all  []crashState
}

func (c *powerLosses) touched(op errorfs.Op) error {
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

// note records the history so far.
func (c *powerLosses) note(v *founders) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = crashState{clusters: maps.Clone(v.clusters), proposals: maps.Clone(v.proposals), sent: slices.Clone(v.sent)}
}

// recordRequests records each request of a founder before it arrives.
func (c *powerLosses) recordRequests(v *founders, f *founder) {
	put := f.port.form
	f.port.form = func(ctx context.Context, to transport.Target, r *wire.FormRequest) (*wire.FormReply, error) {
		v.sent = append(v.sent, proto.CloneOf(r))
		v.proposals[string(r.GetProposal().GetCluster())] = r.GetProposal()
		c.note(v)
		return put(ctx, to, r)
	}
}

func (c *powerLosses) end() []crashState {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.all
}

// formed checks that all founders are one group, also when every request ever sent
// arrives again.
func (v *founders) formed(t *testing.T) {
	t.Helper()
	v.settle()
	for _, r := range v.sent {
		for _, f := range v.founders {
			f.Answer(r)
			v.check()
		}
	}
	first := v.founders[0]
	conf := first.cfg.Log
	for _, f := range v.founders {
		if f.cfg.Identity.Cluster().IsZero() || f.cfg.Identity.Cluster() != first.cfg.Identity.Cluster() {
			t.Errorf("founder %d: cluster %s, want %s", f.n, f.cfg.Identity.Cluster(), first.cfg.Identity.Cluster())
		}
		if !f.cfg.Log.Bootstrapped() {
			t.Errorf("founder %d has no log", f.n)
		}
		_, want, _ := conf.InitialState()
		if _, got, err := f.cfg.Log.InitialState(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("founder %d: configuration %v, want %v: %v", f.n, got, want, err)
		}
		if boot := f.cfg.Identity.Get().GetBoot(); boot < 1 {
			t.Errorf("founder %d: boot counter %d", f.n, boot)
		}
	}
}

// All founders lose power before each operation on any of their disks: while directories
// and identities are created, in proposing, accepting and founding. The restarted
// founders form one group, and a founder that had a group before is in the same.
func TestForming_PowerLossAtEachOperation(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, kept := range []int{0, 100, 50} {
			if testing.Short() && kept != 50 {
				continue
			}
			t.Run(fmt.Sprintf("%d founders, %d%% of unsynced data kept", n, kept), func(t *testing.T) {
				cryptotest.SetGlobalRandom(t, 11)
				c := &powerLosses{kept: kept, rng: rand.New(rand.NewPCG(1, 1))}
				v := foundersOn(t, emptyDisks(n))
				c.note(v)
				v.touched = c.touched
				for _, f := range v.founders {
					c.disks = append(c.disks, f.disk)
				}
				for _, f := range v.founders {
					f.start()
					c.recordRequests(v, f)
				}
				v.formRounds(c)
				moments := c.end()
				v.formed(t)
				t.Logf("%d operations", len(moments))
				for i, m := range moments {
					again := foundersOn(t, m.disks)
					again.clusters, again.proposals, again.sent = maps.Clone(m.clusters), maps.Clone(m.proposals), slices.Clone(m.sent)
					for _, f := range again.founders {
						f.start()
					}
					again.formed(t)
					for member, cluster := range m.clusters {
						if !bytes.Equal(again.clusters[member], cluster) {
							t.Errorf("member %v: cluster %x has become %x", wire.MemberID(member), cluster, again.clusters[member])
						}
					}
					if t.Failed() {
						t.Fatalf("after a power loss at operation %d", i)
					}
				}
			})
		}
	}
}
