package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

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
func (v *village) meet() {
	for range 3 {
		for _, f := range v.founders {
			if f.up {
				f.hears(true)
				f.seek()
				v.check()
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

func (v *village) cut(kept int) ruins {
	m := ruins{clusters: maps.Clone(v.clusters), proposals: maps.Clone(v.proposals), sent: slices.Clone(v.sent)}
	for _, f := range v.founders {
		m.disks = append(m.disks, f.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: v.rng}))
	}
	return m
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
				v := villageOn(t, emptyDisks(n))
				var moments []ruins
				v.touched = func(_ *founder, op errorfs.Op) error {
					if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
						moments = append(moments, v.cut(kept))
					}
					return nil
				}
				for _, f := range v.founders {
					f.start()
				}
				v.meet()
				v.touched = nil
				v.formed(t)
				t.Logf("%d operations", len(moments))
				for i, m := range moments {
					again := villageOn(t, m.disks)
					again.clusters, again.proposals, again.sent = m.clusters, m.proposals, m.sent
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

// One founder's disk dies at each operation while the others go on, and it comes
// back later with what was synced.
func TestFormingSurvivesADeadDiskAtEachOperation(t *testing.T) {
	for n := range 3 {
		at := 1
		for ; formsWithout(t, n, at); at++ {
		}
		if at < 10 {
			t.Errorf("founder %d has done %d operations: has it formed a group?", n, at)
		}
	}
}

// formsWithout returns false when the founder has done all it had to do before
// its disk died.
func formsWithout(t *testing.T, n, at int) (died bool) {
	t.Run(fmt.Sprintf("founder %d, operation %d", n, at), func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 12)
		v := villageOn(t, emptyDisks(3))
		for _, f := range v.founders {
			f.start()
		}
		done := 0
		v.touched = func(f *founder, op errorfs.Op) error {
			if f.n != n || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
				return nil
			}
			if done++; done < at {
				return nil
			}
			died, f.up = true, false
			return syscall.EIO
		}
		v.meet()
		v.touched = nil
		v.formed(t)
	})
	return died
}
