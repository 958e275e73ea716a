package transport

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestQueue_Bounds(t *testing.T) {
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
			q.reset(true)
			pushed := 0
			for q.push(raftFrame("x"), c.size) {
				pushed++
				if pushed == 1 {
					q.take() // items being written still count
				}
			}
			if pushed != c.want {
				t.Fatalf("%d items were accepted, want %d", pushed, c.want)
			}
			q.written()
			if !q.push(raftFrame("x"), c.size) {
				t.Error("written did not release the room")
			}
			q.reset(false)
			if q.push(raftFrame("x"), c.size) {
				t.Error("a queue that does not accept accepted an item")
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

// A Handler that blocks applies backpressure to its peer only: Send drops frames
// without blocking, and every accepted frame arrives afterwards.
func TestSend_BackpressureOfOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := start(t, identity(1), n.listen("a"), func(c *Config) { c.Dial = n.dial; c.Limits.QueueFrames = 50 })
		b := inMemory(t, n, identity(2), "b")
		d := inMemory(t, n, identity(3), "d")
		b.events.stall = make(chan struct{})
		connectAll(t, a, b, d)
		accepted := 0
		for range 1000 {
			if a.Send(2, raftFrame(fmt.Sprint(accepted))) {
				accepted++
			}
			synctest.Wait()
		}
		if accepted < 50 || accepted == 1000 {
			t.Fatalf("%d of 1000 frames were accepted", accepted)
		}
		if !a.Send(3, raftFrame("other peer")) {
			t.Error("Send to another peer returned false")
		}
		d.events.await(t, "frame 1 other peer")
		close(b.events.stall)
		for i := range accepted {
			b.events.await(t, fmt.Sprintf("frame 1 %d", i))
		}
	})
}

// The connection to a peer that stops reading is closed after KeepAliveTimeout,
// and its queue emptied.
func TestPeer_StopsReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := inMemory(t, n, identity(1), "a")
		ln := n.listen("stalled")
		defer ln.Close()
		a.SetPeer(2, "stalled")
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		answer(t, c, identity(2))
		awaitConnected(t, a, 2)
		ln.Close()
		a.Send(2, raftFrame("unread"))
		began := time.Now()
		await(t, func() error {
			if a.PeerError(2) == nil {
				return errors.New("still connected")
			}
			return nil
		})
		if got := time.Since(began).Round(time.Second); got != a.cfg.Timing.KeepAliveTimeout {
			t.Errorf("closed after %v, want %v", got, a.cfg.Timing.KeepAliveTimeout)
		}
		if a.Send(2, raftFrame("x")) {
			t.Error("Send returned true")
		}
	})
}
