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
)

// wreck is a disk as a power cut left it, and how far the work had come.
type wreck struct {
	disk         *vfs.MemFS
	at           string // the operation that the power cut came before
	acknowledged int64  // deeds, when it happened
	begun        int64
	fence        conclave.Fence // the largest that was acknowledged
}

// blackout cuts the power before each operation that changes the disk, keeping
// some of what was not synced, and goes on.
type blackout struct {
	disk                *vfs.MemFS
	kept                int // percent of what was not synced; below 0: another each time
	acknowledged, begun atomic.Int64
	fence               atomic.Uint64

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	wrecks []wreck
}

func newBlackout(kept int) *blackout {
	return &blackout{disk: vfs.NewCrashableMem(), kept: kept, rng: rand.New(rand.NewPCG(5, 5))}
}

func (b *blackout) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	cut := vfs.CrashCloneCfg{UnsyncedDataPercent: b.kept, RNG: b.rng}
	if b.kept < 0 {
		cut.UnsyncedDataPercent = b.rng.IntN(101)
	}
	w := wreck{at: fmt.Sprintf("%d, %d %s", len(b.wrecks), op.Kind, op.Path)}
	w.acknowledged, w.fence = b.acknowledged.Load(), conclave.Fence(b.fence.Load()) // read first: they grow meanwhile
	w.disk = b.disk.CrashClone(cut)
	w.begun = b.begun.Load()
	b.wrecks = append(b.wrecks, w)
	return nil
}

func (b *blackout) String() string { return "blackout" }

// startOn opens the member of a group of one on a disk.
func startOn(ctx context.Context, disk vfs.FS) (*conclave.Node, error) {
	return conclave.Open(cluster.WithSeams(ctx, cluster.Seams{FS: disk}), &conclave.Config{
		Dir: "data", HeartbeatInterval: 10 * time.Millisecond, ElectionTimeout: 100 * time.Millisecond,
	})
}

// estate is what is done to a group of one, and with what.
type estate struct {
	t       *testing.T
	node    *conclave.Node
	session *conclave.Session
	locked  *conclave.FencedLock
	permit  *conclave.Permit
	chair   *conclave.Election
}

func (e *estate) lock(name string) (conclave.Fence, error) {
	e.locked = e.session.FencedLock(name)
	return e.locked.Lock(grouptest.Within(e.t, 20*time.Second))
}

func (e *estate) put(op ...conclave.Op) (conclave.Fence, error) {
	_, err := e.node.KV().Txn(grouptest.Within(e.t, 20*time.Second), op...)
	return 0, err
}

func (e *estate) take(n int) (f conclave.Fence, err error) {
	if e.permit, err = e.session.Semaphore("pool", 3).Acquire(grouptest.Within(e.t, 20*time.Second), n); err != nil {
		return 0, err
	}
	return e.permit.Fence()
}

func (e *estate) campaign(value string) (conclave.Fence, error) {
	e.chair = e.session.Election("chair")
	return e.chair.Campaign(grouptest.Within(e.t, 20*time.Second), []byte(value))
}

// deed is one thing done; it yields a fence, or 0.
type deed func(ctx context.Context, e *estate) (conclave.Fence, error)

// firstLife leaves something of every kind behind, and secondLife changes it,
// in another process.
func firstLife() []deed {
	return []deed{
		func(ctx context.Context, e *estate) (_ conclave.Fence, err error) {
			e.session, err = e.node.NewSession(ctx, grouptest.Lasting())
			return 0, err
		},
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.lock("b") },
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.take(2) },
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.campaign("first") },
		func(_ context.Context, e *estate) (conclave.Fence, error) {
			return e.put(conclave.OpPut("k/1", []byte("v"), conclave.Flags(7)), conclave.OpPut("k/2", []byte(strings.Repeat("v", 40<<10))))
		},
		func(_ context.Context, e *estate) (conclave.Fence, error) {
			return e.put(conclave.OpAcquire("mine", []byte("v"), e.session.ID()), conclave.OpPutFenced("guarded", []byte("v"), 3))
		},
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.lock("a") },
		func(ctx context.Context, e *estate) (conclave.Fence, error) { return 0, e.locked.Unlock(ctx) },
	}
}

func secondLife() []deed {
	return []deed{
		func(ctx context.Context, e *estate) (_ conclave.Fence, err error) {
			e.session, err = e.node.AttachSession(ctx, e.session.ID())
			return 0, err
		},
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.lock("b") },
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.take(2) },
		func(ctx context.Context, e *estate) (conclave.Fence, error) { return 0, e.permit.Release(ctx) },
		func(ctx context.Context, e *estate) (conclave.Fence, error) {
			return 0, e.session.Semaphore("pool", 3).Resize(ctx, 5)
		},
		func(_ context.Context, e *estate) (conclave.Fence, error) { return e.campaign("second") },
		func(ctx context.Context, e *estate) (conclave.Fence, error) { return 0, e.chair.Proclaim(ctx, []byte("third")) },
		func(_ context.Context, e *estate) (conclave.Fence, error) {
			return e.put(conclave.OpDeletePrefix("k/"), conclave.OpRelease("mine", []byte("w"), e.session.ID()))
		},
		func(ctx context.Context, e *estate) (conclave.Fence, error) { return 0, e.session.Close(ctx) },
	}
}

// holdings tells all that a group has, but for what changes with time.
func holdings(t *testing.T, n *conclave.Node) string {
	t.Helper()
	ctx := grouptest.Within(t, 20*time.Second)
	sessions, err := n.Sessions(ctx)
	locks, lockErr := n.Locks(ctx, "")
	keys, keyErr := n.KV().List(ctx, "")
	pool, poolErr := n.Semaphore("pool", 3).Info(ctx)
	leader, leaderErr := n.Election("chair").Leader(ctx)
	if errors.Is(leaderErr, conclave.ErrNoLeader) {
		leaderErr = nil
	}
	if err := errors.Join(err, lockErr, keyErr, poolErr, leaderErr); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sessions %+v\nlocks %+v\npool %+v\nleader %+v\n", sessions, locks, pool, leader)
	for _, k := range keys {
		k.Value = k.Value[:min(len(k.Value), 8)]
		fmt.Fprintf(&b, "key %+v\n", k)
	}
	return b.String()
}

// lives carries the deeds out, in two lives of one member, with the power cut
// all along; states[i] is what there is after i deeds.
func lives(t *testing.T, b *blackout) (states []string) {
	t.Helper()
	e := &estate{t: t}
	for i, deeds := range [][]deed{firstLife(), secondLife()} {
		ctx := grouptest.Within(t, 60*time.Second)
		var err error
		if e.node, err = startOn(ctx, errorfs.Wrap(b.disk, b)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			states = append(states, holdings(t, e.node))
		}
		for _, do := range deeds {
			b.begun.Add(1)
			f, err := do(ctx, e)
			if err != nil {
				t.Fatalf("deed %d: %v", len(states), err)
			}
			b.fence.Store(max(b.fence.Load(), uint64(f)))
			b.acknowledged.Add(1)
			states = append(states, holdings(t, e.node))
		}
		if err := e.node.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return states
}

// The power goes before each operation on the disk in turn, from the making of
// the directory on: in forming a group of one, in everything that is done in it,
// in closing it and in opening it again. The member that starts then has all
// that was acknowledged, and of the deed that was under way all or nothing; and
// its next fence is larger than any that was given out.
func TestPowerCutAtEachOperation(t *testing.T) {
	for name, kept := range map[string]int{"all unsynced lost": 0, "all kept": 100, "some kept": -1} {
		t.Run(name, func(t *testing.T) {
			b := newBlackout(kept)
			states := lives(t, b)
			b.mu.Lock()
			wrecks := b.wrecks
			b.mu.Unlock()
			if last := wrecks[len(wrecks)-1]; last.acknowledged != int64(len(states)-1) || last.fence == 0 {
				t.Fatalf("%d deeds of %d acknowledged in the end, fence %v", last.acknowledged, len(states)-1, last.fence)
			}
			t.Logf("%d operations", len(wrecks))
			for _, w := range wrecks {
				t.Run(w.at, func(t *testing.T) {
					t.Parallel()
					w.check(t, states[w.acknowledged:w.begun+1])
				})
			}
		})
	}
}

func (w *wreck) check(t *testing.T, possible []string) {
	t.Helper()
	n, err := startOn(grouptest.Within(t, 20*time.Second), w.disk)
	if err != nil {
		t.Fatal(err)
	}
	defer grouptest.Kill(n)
	got := holdings(t, n)
	found := false
	for _, p := range possible {
		found = found || p == got
	}
	if !found {
		t.Fatalf("with %d deeds acknowledged and %d begun:\n%s\nwant\n%s", w.acknowledged, w.begun, got, strings.Join(possible, "or\n"))
	}
	if f := grouptest.MustLock(t, n.FencedLock("next")); f <= w.fence {
		t.Errorf("fence %v after %v", f, w.fence)
	}
}
