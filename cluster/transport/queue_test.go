package transport

import (
	"errors"
	"fmt"
	"slices"
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

// Bulk is written when nothing else is queued, a write at a time, and may fill half of
// the queue.
func TestQueue_BulkLast(t *testing.T) {
	q := newQueue[int](100, 8*maxWrite)
	q.reset(true)
	pushed := 0
	for q.pushBulk(pushed+1, maxWrite/2) {
		pushed++
	}
	if pushed != 8 {
		t.Errorf("%d bulk items were accepted, want 8: half of the bytes", pushed)
	}
	var got [][]int
	for round := range 6 {
		if round < 2 && !(q.push(-1, 10) && q.push(-2, 10)) {
			t.Fatal("bulk has taken all of the room")
		}
		select {
		case <-q.ready:
		default:
			t.Fatal("items are queued without a signal")
		}
		got = append(got, q.take())
		q.written()
	}
	want := [][]int{{-1, -2}, {-1, -2}, {1, 2}, {3, 4}, {5, 6}, {7, 8}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("written in the order %v, want %v", got, want)
	}
	if q.bytes != 0 || q.bulkBytes != 0 || q.writing != 0 {
		t.Errorf("%d and %d bytes are left", q.bytes, q.bulkBytes)
	}
	items := newQueue[int](10, 1000)
	items.reset(true)
	for pushed = 0; items.pushBulk(1, 1); pushed++ {
	}
	if pushed != 5 {
		t.Errorf("%d bulk items were accepted of 10, want 5", pushed)
	}
}

// A submission that is not urgent is bulk; frames of raft and urgent ones are not.
func TestSend_Lanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inMemory(t, newMemNet(), identity(1), "a")
		a.SetPeer(m(2), "nowhere")
		q := a.peer(m(2)).queue
		q.reset(true)
		defer q.reset(false)
		submission := func(urgent bool) *wire.Frame {
			return &wire.Frame{Body: &wire.Frame_Submission{Submission: &wire.Submission{Floor: 1, Urgent: urgent}}}
		}
		for _, f := range []*wire.Frame{submission(false), raftFrame("x"), submission(true)} {
			if !a.Send(m(2), f) {
				t.Fatal("Send returned false")
			}
		}
		if len(q.items) != 2 || len(q.bulk) != 1 {
			t.Errorf("%d frames and %d bulk, want 2 and 1", len(q.items), len(q.bulk))
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
