package grouptest

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// Each way in which the body of a loop can end without returning to the sequence. A test that
// fails in the body ends its goroutine.
func endings() map[string]func() {
	return map[string]func(){
		"panic":  func() { panic("the body of the loop") },
		"Goexit": runtime.Goexit,
	}
}

// abruptly runs a function that does not return.
func abruptly(t *testing.T, f func()) {
	t.Helper()
	var all sync.WaitGroup
	all.Go(func() {
		defer func() { _ = recover() }()
		f()
		t.Error("the loop has returned")
	})
	all.Wait()
}

// A member serves 256 requests of a client at a time, and the loops of the client end by whatever the
// application does in them.
func TestClient_LoopsEndAbruptly(t *testing.T) {
	t.Parallel()
	n := Alone(t)
	_, err := n.KV().Put(Bounded(t), "k", []byte("v"))
	Must(t, err)
	for name, end := range endings() {
		t.Run(name, func(t *testing.T) {
			c := Dial(t, &conclave.ClientConfig{}, n)
			ctx := Bounded(t)
			for range 150 {
				abruptly(t, func() {
					for range c.KV().Watch(ctx, "", 0) {
						end()
					}
				})
				abruptly(t, func() {
					for range c.Election("none").Observe(ctx) {
						end()
					}
				})
				abruptly(t, func() {
					// A busy member has not ended those before yet, and has ErrBusy for a fifth.
					for errors.Is(c.Backup(ctx, writerFunc(func([]byte) (int, error) { end(); return 0, nil })), conclave.ErrBusy) {
						Pass(time.Millisecond)
					}
				})
				abruptly(t, func() {
					for range c.Checks(ctx) {
						end()
					}
				})
			}
			_, err := c.KV().Get(ctx, "k")
			Must(t, err)
			_, err = c.Status(ctx)
			Must(t, err)
		})
	}
}

// An event function or a VerifyPeer that ends its goroutine ends none that the node or the client needs.
func TestCallbacks_EndAbruptly(t *testing.T) {
	t.Parallel()
	for name, end := range endings() {
		t.Run(name, func(t *testing.T) {
			var once, refused sync.Once
			lost := make(chan string, 2)
			cfg := SoloConfig(t)
			cfg.Dir = ""
			cfg.Events = &conclave.Events{LockLost: func(name string, _ conclave.Fence) {
				once.Do(end)
				lost <- name
			}}
			cfg.VerifyPeer = func(conclave.Peer) error { refused.Do(end); return nil }
			n, err := conclave.Open(Bounded(t), &cfg)
			Must(t, err)
			t.Cleanup(func() { Kill(n) })
			var dialed sync.Once
			c := Dial(t, &conclave.ClientConfig{VerifyPeer: func(conclave.Peer) error { dialed.Do(end); return nil }}, n)
			MustPut(t, c.KV(), "k", "v")
			for _, lock := range []string{"first", "second"} {
				s := MustSession(t, n, Lasting())
				MustLock(t, s.FencedLock(lock))
				Must(t, n.CloseSession(Bounded(t), s.ID()))
			}
			if name := <-lost; name != "second" {
				t.Errorf("the loss of %q is reported", name)
			}
			Must(t, n.Close(Bounded(t)))
		})
	}
}
