package transport

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// A submission that is not urgent is bulk; frames of raft and urgent ones are not.
func TestSend_Lanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inMemory(t, newMemNet(), identity(1), "a")
		a.SetPeer(m(2), "nowhere")
		q := a.peer(m(2)).queue
		q.Reset(true)
		defer q.Reset(false)
		submission := func(urgent bool) *wire.Frame {
			return &wire.Frame{Body: &wire.Frame_Submission{Submission: &wire.Submission{Floor: 1, Urgent: urgent}}}
		}
		for _, f := range []*wire.Frame{submission(false), raftFrame("x"), submission(true)} {
			if !a.Send(m(2), f) {
				t.Fatal("Send returned false")
			}
		}
		if items, bulk, _ := q.Len(); items != 2 || bulk != 1 {
			t.Errorf("%d frames and %d bulk, want 2 and 1", items, bulk)
		}
	})
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
			if a.Send(m(2), raftFrame(fmt.Sprint(accepted))) {
				accepted++
			}
			synctest.Wait()
		}
		if accepted < 50 || accepted == 1000 {
			t.Fatalf("%d of 1000 frames were accepted", accepted)
		}
		if !a.Send(m(3), raftFrame("other peer")) {
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
		a.SetPeer(m(2), "stalled")
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		id := identity(2)
		id.Advertise = "stalled"
		answer(t, c, id)
		awaitConnected(t, a, m(2))
		ln.Close()
		a.Send(m(2), raftFrame("unread"))
		began := time.Now()
		await(t, func() error {
			if a.PeerError(m(2)) == nil {
				return errors.New("still connected")
			}
			return nil
		})
		if got := time.Since(began).Round(time.Second); got != a.cfg.Timing.KeepAliveTimeout {
			t.Errorf("closed after %v, want %v", got, a.cfg.Timing.KeepAliveTimeout)
		}
		if a.Send(m(2), raftFrame("x")) {
			t.Error("Send returned true")
		}
	})
}
