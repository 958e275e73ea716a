package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// newSharing returns a client of a fake group in which shares can linger, a handle of it that lingers,
// and one of another session that does not.
func newSharing(t *testing.T, reentrant bool) (*Client, *fakeGroup, *RWLock, *RWLock) {
	t.Helper()
	c, g, other := newLingering(t)
	return c, g, newRWLock(t, c, LockConfig{Linger: stay, Reentrant: reentrant}), newRWLock(t, c, LockConfig{Lease: other})
}

func mustReleaseShared(t *testing.T, l *RWLock) {
	t.Helper()
	if err := l.ReleaseShared(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// Handles of one session share a tenure, without a command, until nothing has been held for a while.
func TestSharedTenure_NoCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, _ := newSharing(t, false)
		defer c.StopRenewing()
		b := newRWLock(t, c, LockConfig{Linger: stay})
		first := mustShare(t, a)
		applied := g.commands()
		for range 3 {
			for _, l := range []*RWLock{a, b, b} {
				if f := mustShare(t, l); f != first {
					t.Errorf("fence %d, want %d", f, first)
				}
			}
			if f, err := b.Fence(); f != first || err != nil || a.Holds() != 2 || b.Holds() != 2 || b.GrantedFence() != first {
				t.Errorf("fence %d, %v, %d and %d holds", f, err, a.Holds(), b.Holds())
			}
			for _, l := range []*RWLock{b, a, b} {
				mustReleaseShared(t, l)
			}
		}
		mustReleaseShared(t, a)
		wantKind(t, a.ReleaseShared(t.Context(), nil), NotHeld)
		if a.Lost() != nil || b.Holds() != 0 {
			t.Error("a handle that holds nothing has a hold")
		}
		if got := g.commands(); got != applied {
			t.Errorf("%d commands, the last is %v", got-applied, g.last())
		}
		if v := g.lock("x"); v == nil || v.Shared != 1 || !v.Lingering {
			t.Errorf("the group sees %+v", v)
		}
		time.Sleep(stay / 2)
		if v := g.lock("x"); v == nil {
			t.Error("the share did not linger")
		}
		time.Sleep(stay / 2)
		synctest.Wait()
		if v := g.lock("x"); v != nil {
			t.Errorf("after its time to linger, the group sees %+v", v)
		}
		if f := mustShare(t, a); f <= first {
			t.Errorf("fence %d of another phase than that of %d", f, first)
		}
	})
}

// A tenure in use does not end, and one that a hold was just released of lingers again.
func TestSharedTenure_InUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, _ := newSharing(t, false)
		defer c.StopRenewing()
		mustShare(t, a)
		applied := g.commands()
		time.Sleep(5 * stay)
		for range 10 {
			mustReleaseShared(t, a)
			time.Sleep(stay / 2)
			mustShare(t, a)
		}
		for _, cmd := range g.since(applied) {
			if cmd.GetLock() != nil || cmd.GetUnlock() != nil {
				t.Errorf("got %v while the tenure is in use", cmd)
			}
		}
	})
}

// since returns the commands that were applied after the first n.
func (g *fakeGroup) since(n int) []*wire.Command {
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.applied[n:]
}

// A writer recalls all that lingers: what is held here ends first, and what comes later queues
// behind the writer.
func TestSharedTenure_Recalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, writer := newSharing(t, false)
		defer c.StopRenewing()
		elsewhere := newRWLock(t, c, LockConfig{Linger: stay, Lease: mustOpen(t, c, time.Hour)})
		first := mustShare(t, a)
		mustShare(t, a)
		mustShare(t, elsewhere)
		mustReleaseShared(t, elsewhere)
		wrote := calling(t.Context(), writer.Acquire)
		synctest.Wait()
		if v := g.lock("x"); v.Shared != 1 || v.Waiters != 1 {
			t.Errorf("the group has %+v, want one share and the writer", v)
		}
		mustReleaseShared(t, a)
		late := calling(t.Context(), a.AcquireShared)
		synctest.Wait()
		select {
		case err := <-late:
			t.Fatalf("a reader passed the writer: %v", err)
		case err := <-wrote:
			t.Fatalf("the writer has the lock beside a reader: %v", err)
		default:
		}
		began := time.Now()
		mustReleaseShared(t, a)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the share was released %v after the last hold", took)
		}
		written, _ := writer.Fence()
		if err := writer.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := <-late; err != nil {
			t.Fatal(err)
		}
		if f, err := a.Fence(); err != nil || f <= written || written <= first {
			t.Errorf("fences %d, %d, %d, %v; want them to grow", first, written, f, err)
		}
		mustReleaseShared(t, a) // for a second nothing lingers
		synctest.Wait()
		wantReleased(t, g, a)
		time.Sleep(abstention)
		mustShare(t, a)
		mustReleaseShared(t, a)
		synctest.Wait()
		if v := g.lock("x"); v == nil {
			t.Error("nothing lingers any more")
		}
	})
}

// A refused writer recalls the tenure as well. What is held then ends, though others share the lock here all the time.
func TestSharedTenure_RecalledByTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, writer := newSharing(t, false)
		defer c.StopRenewing()
		mustShare(t, a)
		_, err := writer.Acquire(t.Context(), false, nil)
		if !isCode(err, wire.Code_LOCKED) {
			t.Fatalf("got %v, want LOCKED", err)
		}
		synctest.Wait()
		mustShare(t, a) // in another tenure
		both := g.lock("x")
		if both.Shared != 2 || a.Holds() != 2 {
			t.Fatalf("the group has %+v, and the handle %d holds; want 2", both, a.Holds())
		}
		mustReleaseShared(t, a)
		synctest.Wait()
		if v := g.lock("x"); v.Shared != 1 || a.Holds() != 1 || v.Holders[0].Number != both.Holders[1].Number {
			t.Errorf("the group has %+v, want the later share", v)
		}
		mustReleaseShared(t, a)
		synctest.Wait()
		wantReleased(t, g, a)
	})
}

// The owner of a re-entrant handle passes the writer that has recalled the tenure.
func TestSharedTenure_Reentrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, writer := newSharing(t, true)
		defer c.StopRenewing()
		a.limit = 3
		mustShare(t, a)
		mustShare(t, a)
		_, err := a.Acquire(t.Context(), true, nil)
		wantKind(t, err, OtherMode)
		wrote := calling(t.Context(), writer.Acquire)
		synctest.Wait()
		mustShare(t, a)
		_, err = a.AcquireShared(t.Context(), true, nil)
		if !isCode(err, wire.Code_LIMIT_REACHED) {
			t.Errorf("got %v, want the limit", err)
		}
		for range 3 {
			mustReleaseShared(t, a)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		if v := g.lock("x"); v.Shared != 0 {
			t.Errorf("the group has %+v, want the writer", v)
		}
	})
}

// Callers that wait for a tenure leave it, the last one with its request; and one that is granted a share while
// it leaves releases it.
func TestSharedTenure_Abandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, writer := newSharing(t, false)
		defer c.StopRenewing()
		mustWrite(t, writer)
		first, leaveFirst := context.WithCancel(t.Context())
		second, leaveSecond := context.WithCancel(t.Context())
		waiting := []<-chan error{calling(first, a.AcquireShared), calling(second, a.AcquireShared)}
		synctest.Wait()
		if v := g.lock("x"); v.Waiters != 1 {
			t.Errorf("the group has %+v, want one request of the tenure", v)
		}
		leaveFirst()
		err := <-waiting[0]
		wantKind(t, err, Interrupted)
		if f, ok := err.(*Fault); !ok || f.Reply.GetPosition() != 1 || f.Reply.GetHolder() == nil {
			t.Errorf("the fault does not say what the request waited for: %v", err)
		}
		synctest.Wait()
		if v := g.lock("x"); v.Waiters != 1 {
			t.Errorf("the group has %+v, want the request of the one that still waits", v)
		}
		leaveSecond()
		wantKind(t, <-waiting[1], Interrupted)
		synctest.Wait()
		if v := g.lock("x"); v.Waiters != 0 {
			t.Errorf("the group has %+v, want no request", v)
		}
		if err := writer.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		wantReleased(t, g, a)
	})
}

// One request without waiting does not wait, and its tenure is for all.
func TestSharedTenure_Try(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g, a, writer := newSharing(t, false)
		defer c.StopRenewing()
		mustWrite(t, writer)
		_, err := a.AcquireShared(t.Context(), false, nil)
		if !isCode(err, wire.Code_LOCKED) {
			t.Errorf("got %v, want LOCKED", err)
		}
		if err := writer.Release(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.AcquireShared(t.Context(), false, nil); err != nil {
			t.Fatal(err)
		}
		applied := g.commands()
		mustShare(t, a)
		if g.commands() != applied {
			t.Errorf("got %v, want no command", g.last())
		}
	})
}
