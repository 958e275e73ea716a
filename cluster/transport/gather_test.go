package transport

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

// countedWrites counts the writes to a connection.
type countedWrites struct {
	net.Conn
	n *atomic.Int64
}

func (c countedWrites) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// Frames that may wait share a write, at the end of the time that the first one may wait or with a frame that may not. A connection that ends
// takes those that wait along.
func TestSendLater_SharesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes atomic.Int64
		n := newMemNet()
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := n.dial(ctx, addr)
				return countedWrites{conn, &writes}, err
			}
			c.Timing.KeepAlive, c.Timing.KeepAliveTimeout, c.Timing.Gather = time.Hour, 3*time.Hour, 20*time.Millisecond
		})
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		synctest.Wait()
		later := func(from, to int) {
			for i := from; i < to; i++ {
				f := raftFrame(fmt.Sprint(i))
				f.Group = uint32(i)
				if !a.SendLater(m(2), f) {
					t.Fatal("SendLater returned false")
				}
				synctest.Wait() // the writer has every chance
			}
		}
		arrive := func(count int, wrote int64) {
			t.Helper()
			synctest.Wait()
			if got := len(b.events.ch); got != count || writes.Load() != wrote {
				t.Errorf("%d frames in %d writes have arrived, want %d in %d", got, writes.Load(), count, wrote)
			}
		}
		for len(b.events.ch) > 0 {
			<-b.events.ch
		}
		writes.Store(0)
		later(1, 50)
		time.Sleep(15 * time.Millisecond)
		later(50, 101)
		arrive(0, 0)
		time.Sleep(5 * time.Millisecond)
		arrive(100, 1)
		later(1, 2)
		a.Send(m(2), raftFrame("at once"))
		arrive(102, 2)
		time.Sleep(time.Second)
		arrive(102, 2)
		later(1, 3)
		time.Sleep(20 * time.Millisecond)
		arrive(104, 3)
	})
}

// Frames that wait fill at most half of the queue.
func TestSendLater_FullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemNet()
		a := start(t, identity(1), n.listen("a"), func(c *Config) {
			c.Dial, c.Limits.QueueFrames, c.Timing.Gather = n.dial, 200, time.Hour
		})
		b := inMemory(t, n, identity(2), "b")
		connectAll(t, a, b)
		for i := range 1000 {
			if !a.SendLater(m(2), raftFrame(fmt.Sprint(i))) {
				t.Fatalf("frame %d was refused", i)
			}
			synctest.Wait()
		}
	})
}

// A frame that waited when its connection ended is not sent by the next one.
func TestSendLater_ConnectionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := inMemory(t, newMemNet(), identity(1), "a")
		a.SetPeer(m(2), "nowhere")
		q := a.peer(m(2)).queue
		send := func() bool { return a.SendLater(m(2), &wire.Frame{Body: &wire.Frame_Raft{}}) }
		if send() || a.SendLater(m(3), raftFrame("unknown")) {
			t.Error("SendLater returned true without a connection")
		}
		q.Reset(true)
		send()
		q.Reset(true)
		time.Sleep(time.Second)
		select {
		case <-q.Ready:
			t.Error("an empty queue is ready")
		default:
		}
		send()
		time.Sleep(time.Second)
		<-q.Ready
		q.Reset(false)
	})
}
