//go:build unix

package process

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// These tests stop processes with SIGSTOP, which a process cannot notice, and check
// what it believes when it continues.

// stop returns when the system reports that the process has stopped: kill returns before.
func (p *process) stop() {
	p.t.Helper()
	p.stopped = true
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err != nil && !errors.Is(err, syscall.EINTR):
			p.t.Fatal(err)
		case status.Exited() || status.Signaled():
			p.t.Fatal("the process ended before it stopped")
		}
	}
}

func (p *process) resume() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
	p.stopped = false
}

// wantLost checks that a process that has just been resumed knows that it has lost
// the lock, from the first call on and by every call.
func wantLost(p *process, lock string) {
	p.t.Helper()
	_, err := p.ask("fence", lock) // the first call after the pause
	wantIs(p.t, err, conclave.ErrLockOwnershipLost)
	p.must("lost", lock)
	_, err = p.ask("try", lock)
	wantIs(p.t, err, conclave.ErrLockOwnershipLost)
	_, err = p.ask("unlock", lock)
	wantIs(p.t, err, conclave.ErrLockOwnershipLost)
}

// The holder is stopped until the group has granted the lock to another process.
func TestPause_Holder(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			g := processesOf(t, 3, 10*time.Second)
			holder := g.leader()
			if role == "follower" {
				holder = (holder + 1) % 3
			}
			paused, other := g.members[holder], g.members[(holder+1)%3]
			var resource conclave.Guard

			old := paused.must("lock", "x")
			paused.stop()
			current := other.must("lock", "x") // granted when the holder's session has expired
			if current <= old {
				t.Errorf("fence %v after %v", current, old)
			}
			if err := resource.Check("x", current); err != nil {
				t.Error(err)
			}
			paused.resume()

			wantLost(paused, "x")
			wantIs(t, resource.Check("x", old), conclave.ErrStaleFence)
			if f := other.must("fence", "x"); f != current {
				t.Errorf("the holder's fence has changed from %v to %v", current, f)
			}
			other.must("unlock", "x")
			if again := paused.must("lock", "x"); again <= current {
				t.Errorf("fence %v after %v", again, current)
			}
		})
	}
}

// The leader is stopped for two TTLs. When it continues it believes that it leads
// and that no session was renewed. Sessions that were renewed with its successor
// survive that (etcd#15247).
func TestPause_Leader(t *testing.T) {
	t.Parallel()
	const ttl = 8 * time.Second // long enough for the holder to outlast the election
	g := processesOf(t, 3, ttl)
	leader := g.leader()
	paused, holder, other := g.members[leader], g.members[(leader+1)%3], g.members[(leader+2)%3]
	paused.must("lock", "its own")
	kept := holder.must("lock", "kept")
	session := sessionOf(holder)

	paused.stop()
	<-time.After(2 * ttl) // the pause
	other.must("lock", "its own")
	paused.resume()

	wantLost(paused, "its own")
	for _, text := range []string{`level=WARN msg="this process did not run" paused=`, "this process did not run for "} { // the second is in the session's error
		if _, err := paused.do(order{Do: "logged", Text: text}); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []*process{paused, other} {
		_, err := p.ask("try", "kept")
		wantIs(t, err, conclave.ErrLocked)
	}
	if f := holder.must("fence", "kept"); f != kept {
		t.Errorf("fence %v has become %v", kept, f)
	}
	if now := sessionOf(holder); now != session {
		t.Errorf("session %v has become %v", session, now)
	}
	holder.must("unlock", "kept")
	if f := paused.must("lock", "kept"); f <= kept {
		t.Errorf("fence %v after %v", f, kept)
	}
}

// sessionOf returns the only session that the group has of a process.
func sessionOf(p *process) conclave.SessionID {
	p.t.Helper()
	r, err := p.do(order{Do: "sessions"})
	if err != nil || len(r.Sessions) != 1 {
		p.t.Fatalf("sessions %v, %v", r.Sessions, err)
	}
	return r.Sessions[0]
}

// wantIs is for errors of a process, which are no *Error here.
func wantIs(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v; want %q", err, want)
	}
}
