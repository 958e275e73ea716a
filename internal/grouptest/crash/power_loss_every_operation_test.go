package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/memdisk"
)

// image is a disk after a power loss, and how far the workload had come.
type image struct {
	disk         *vfs.MemFS
	at           string         // the operation before which the power was lost
	acknowledged int64          // steps
	begun        int64          // steps
	fence        conclave.Fence // the largest acknowledged
}

// recorder records the image that a power loss would leave before each operation
// that changes the disk.
type recorder struct {
	disk                *memdisk.Disk
	kept                int // percent of the unsynced data; negative: random each time
	acknowledged, begun atomic.Int64
	fence               atomic.Uint64

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	images []image
}

func newRecorder(kept int) *recorder {
	return &recorder{disk: memdisk.New(), kept: kept, rng: rand.New(rand.NewPCG(5, 5))}
}

func (b *recorder) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	cut := vfs.CrashCloneCfg{UnsyncedDataPercent: b.kept, RNG: b.rng}
	if b.kept < 0 {
		cut.UnsyncedDataPercent = b.rng.IntN(101)
	}
	w := image{at: fmt.Sprintf("%d, %d %s", len(b.images), op.Kind, op.Path)}
	w.acknowledged, w.fence = b.acknowledged.Load(), conclave.Fence(b.fence.Load()) // before the image: they grow meanwhile
	w.disk = b.disk.CrashClone(cut)
	w.begun = b.begun.Load()
	b.images = append(b.images, w)
	return nil
}

func (b *recorder) String() string { return "recorder" }

// startOn opens a group of one on a disk.
func startOn(ctx context.Context, disk vfs.FS) (*conclave.Node, error) {
	return conclave.Open(cluster.WithSeams(ctx, cluster.Seams{FS: disk}), &conclave.Config{
		Dir: "data", HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond,
	})
}

// workload is the state of a process that runs steps.
type workload struct {
	t        testing.TB
	node     *conclave.Node
	session  *conclave.Session
	locked   *conclave.FencedLock
	permit   *conclave.Permit
	election *conclave.Election
}

func (e *workload) lock(name string) (conclave.Fence, error) {
	e.locked = e.session.FencedLock(name)
	return e.locked.Lock(grouptest.Bounded(e.t))
}

func (e *workload) put(op ...conclave.Op) (conclave.Fence, error) {
	_, err := e.node.KV().Txn(grouptest.Bounded(e.t), op...)
	return 0, err
}

func (e *workload) take(n int) (f conclave.Fence, err error) {
	if e.permit, err = e.session.Semaphore("pool", 3).Acquire(grouptest.Bounded(e.t), n); err != nil {
		return 0, err
	}
	return e.permit.Fence()
}

func (e *workload) campaign(value string) (conclave.Fence, error) {
	e.election = e.session.Election("x")
	return e.election.Campaign(grouptest.Bounded(e.t), []byte(value))
}

// step is one step of the workload. It returns a fence, or 0.
type step func(ctx context.Context, e *workload) (conclave.Fence, error)

// firstProcess creates something of every kind, and secondProcess, after a restart,
// changes it.
func firstProcess() []step {
	return []step{
		func(ctx context.Context, e *workload) (_ conclave.Fence, err error) {
			e.session, err = e.node.NewSession(ctx, grouptest.Lasting())
			return 0, err
		},
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.lock("b") },
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.take(2) },
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.campaign("first") },
		func(_ context.Context, e *workload) (conclave.Fence, error) {
			return e.put(conclave.OpPut("k/1", []byte("v"), conclave.WithFlags(7)), conclave.OpPut("k/2", []byte(strings.Repeat("v", 40<<10))))
		},
		func(_ context.Context, e *workload) (conclave.Fence, error) {
			return e.put(conclave.OpAcquire("mine", []byte("v"), e.session.ID()), conclave.OpPutFenced("guarded", []byte("v"), 3))
		},
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.lock("a") },
		func(ctx context.Context, e *workload) (conclave.Fence, error) { return 0, e.locked.Unlock(ctx) },
	}
}

func secondProcess() []step {
	return []step{
		func(ctx context.Context, e *workload) (_ conclave.Fence, err error) {
			e.session, err = e.node.AttachSession(ctx, e.session.ID())
			return 0, err
		},
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.lock("b") },
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.take(2) },
		func(ctx context.Context, e *workload) (conclave.Fence, error) { return 0, e.permit.Release(ctx) },
		func(ctx context.Context, e *workload) (conclave.Fence, error) {
			return 0, e.session.Semaphore("pool", 3).Resize(ctx, 5)
		},
		func(_ context.Context, e *workload) (conclave.Fence, error) { return e.campaign("second") },
		func(ctx context.Context, e *workload) (conclave.Fence, error) {
			return 0, e.election.Proclaim(ctx, []byte("third"))
		},
		func(_ context.Context, e *workload) (conclave.Fence, error) {
			return e.put(conclave.OpDeletePrefix("k/"), conclave.OpRelease("mine", []byte("w"), e.session.ID()))
		},
		func(ctx context.Context, e *workload) (conclave.Fence, error) { return 0, e.session.Close(ctx) },
	}
}

// dump describes a group's state, except for what changes with time.
func dump(t testing.TB, n *conclave.Node) string {
	t.Helper()
	ctx := grouptest.Bounded(t)
	sessions, err := grouptest.Collect(n.Sessions(ctx))
	locks, lockErr := grouptest.Collect(n.Locks(ctx, ""))
	keys, keyErr := n.KV().List(ctx, "")
	pool, poolErr := n.Semaphore("pool", 3).Info(ctx)
	leader, leaderErr := n.Election("x").Leader(ctx)
	if errors.Is(leaderErr, conclave.ErrNoLeader) {
		leaderErr = nil
	}
	if err := errors.Join(err, lockErr, keyErr, poolErr, leaderErr); err != nil {
		t.Fatal(err)
	}
	for i := range locks {
		locks[i].Since = 0
	}
	leader.Member = conclave.Member{} // its address, and when it was heard
	var b strings.Builder
	fmt.Fprintf(&b, "sessions %+v\nlocks %+v\npool %+v\nleader %+v\n", sessions, locks, pool, leader)
	for _, k := range keys {
		k.Value = k.Value[:min(len(k.Value), 8)]
		fmt.Fprintf(&b, "key %+v\n", k)
	}
	return b.String()
}

// runWorkload runs the steps in two processes of one member on the recorder's disk.
// states[i] is the state after i steps.
func runWorkload(t *testing.T, b *recorder) (states []string) {
	t.Helper()
	e := &workload{t: t}
	for i, steps := range [][]step{firstProcess(), secondProcess()} {
		ctx := grouptest.Bounded(t)
		var err error
		if e.node, err = startOn(ctx, errorfs.Wrap(b.disk, b)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			states = append(states, dump(t, e.node))
		}
		for _, do := range steps {
			b.begun.Add(1)
			f, err := do(ctx, e)
			if err != nil {
				t.Fatalf("step %d: %v", len(states), err)
			}
			b.fence.Store(max(b.fence.Load(), uint64(f)))
			b.acknowledged.Add(1)
			states = append(states, dump(t, e.node))
		}
		if err := e.node.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return states
}

// Power loss before each operation on the disk, from the creation of the directory
// on: while the group forms, works, closes and opens again. The member that starts on
// the image has every acknowledged step, all or nothing of the pending one, and its next
// fence is larger than any before.
func TestPowerLoss_EveryOperation(t *testing.T) {
	for name, kept := range map[string]int{"unsynced data lost": 0, "unsynced data kept": 100, "unsynced data kept in part": -1} {
		t.Run(name, func(t *testing.T) {
			b := newRecorder(kept)
			states := runWorkload(t, b)
			b.mu.Lock()
			images := b.images
			b.mu.Unlock()
			if last := images[len(images)-1]; last.acknowledged != int64(len(states)-1) || last.fence == 0 {
				t.Fatalf("%d steps of %d acknowledged at the end, fence %v", last.acknowledged, len(states)-1, last.fence)
			}
			t.Logf("%d operations", len(images))
			for i, w := range images {
				if testing.Short() && i%7 != 0 {
					continue
				}
				t.Run(w.at, func(t *testing.T) {
					t.Parallel()
					w.check(t, states[w.acknowledged:w.begun+1])
				})
			}
		})
	}
}

func (w *image) check(t *testing.T, possible []string) {
	t.Helper()
	n, err := startOn(grouptest.Bounded(t), w.disk)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Kill(n)
	got := dump(t, n)
	found := false
	for _, p := range possible {
		found = found || p == got
	}
	if !found {
		t.Fatalf("with %d steps acknowledged and %d begun:\n%s\nwant\n%s", w.acknowledged, w.begun, got, strings.Join(possible, "or\n"))
	}
	if f := grouptest.MustLock(t, n.FencedLock("next")); f <= w.fence {
		t.Errorf("fence %v after %v", f, w.fence)
	}
}
