package transport

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// Frames beyond the bounds are refused at once and the rest arrive in order.
func TestQueueIsBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits Limits
		size   int
		want   int
	}{
		{"by frames", Limits{QueueFrames: 10}, 10, 10},
		{"by bytes", Limits{QueueBytes: 5000}, 1000, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := newQueue[*wire.Frame](orDefault(c.limits.QueueFrames), orDefault(c.limits.QueueBytes))
			q.setOpen(true)
			pushed := 0
			for q.push(raftFrame("x"), c.size) {
				pushed++
				if pushed == 1 {
					q.take() // what is taken still counts
				}
			}
			if pushed != c.want {
				t.Fatalf("%d were taken, want %d", pushed, c.want)
			}
			q.written()
			if !q.push(raftFrame("x"), c.size) {
				t.Error("writing gave no room back")
			}
			q.setOpen(false)
			if q.push(raftFrame("x"), c.size) {
				t.Error("a closed queue took something")
			}
		})
	}
}

func orDefault(n int) int {
	if n == 0 {
		return 1 << 30
	}
	return n
}

// A handler that does not return holds up its own peer only; Send does not
// wait, drops and says so, and all that was taken arrives afterwards.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := start(t, identity(1), n.listen("a"), func(c *Config) { c.Dial = n.dial; c.Limits.QueueFrames = 50 })
		b := inMemory(t, n, identity(2), "b")
		d := inMemory(t, n, identity(3), "d")
		b.events.stall = make(chan struct{})
		introduceAll(t, a, b, d)
		taken := 0
		for range 1000 {
			if a.Send(2, raftFrame(fmt.Sprint(taken))) {
				taken++
			}
			synctest.Wait()
		}
		if taken < 50 || taken == 1000 {
			t.Fatalf("%d of 1000 frames were taken", taken)
		}
		if !a.Send(3, raftFrame("beside")) {
			t.Error("another peer suffers")
		}
		d.events.await(t, "frame 1 beside")
		close(b.events.stall)
		for i := range taken {
			b.events.await(t, fmt.Sprintf("frame 1 %d", i))
		}
	})
}

// A peer that stops reading is given up after a while of no progress, and the
// queue with it.
func TestPeerThatStopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		ln := n.listen("deaf")
		defer ln.Close()
		a.SetPeer(2, "deaf")
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		answer(t, c, identity(2))
		awaitConnected(t, a, 2)
		ln.Close()
		a.Send(2, raftFrame("into the void"))
		began := time.Now()
		await(t, func() error {
			if a.PeerError(2) == nil {
				return errors.New("still connected")
			}
			return nil
		})
		if got := time.Since(began).Round(time.Second); got != a.cfg.Timing.Silence {
			t.Errorf("given up after %v, want %v", got, a.cfg.Timing.Silence)
		}
		if a.Send(2, raftFrame("x")) {
			t.Error("still sending")
		}
	})
}
