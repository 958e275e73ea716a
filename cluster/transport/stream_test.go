package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A write that waits for another one, which the peer does not accept, lets virtual time pass,
// so that the deadline of the other one comes.
func TestStream_WriteWaitsForKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		s := newStream(&conn{Conn: near, raw: near, done: make(chan struct{})}, Timing{KeepAlive: time.Second, KeepAliveTimeout: 5 * time.Second}, 1<<10)
		defer s.Close()
		began := time.Now()
		go func() { _ = s.writeKeepAlive() }()
		synctest.Wait()
		if err := s.writeKeepAlive(); err != nil {
			t.Error(err) // it is skipped
		}
		if err := s.write(appendFrame(nil, []byte("x"))); err == nil {
			t.Error("a write that the peer does not accept succeeds")
		}
		if d := time.Since(began); d != 10*time.Second {
			t.Errorf("failed after %v", d)
		}
	})
}
