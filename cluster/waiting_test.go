package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A member that waits for its group logs why, every ten seconds.
func TestStart_WaitIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		cfg := Config{
			Name: "waiting", Group: "test", Listener: newIdleListener(), Advertise: "127.0.0.1:1", Expect: 3, Voters: 3,
			Heartbeat: 100 * time.Millisecond, Election: time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		_, err := Start(ctx, cfg)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "found 1 of 3 founders") {
			t.Fatalf("Start: %v", err)
		}
		line := `level=INFO msg="waiting to form or find the group" reason="found 1 of 3 founders`
		if n := strings.Count(out.String(), line); n != 3 {
			t.Errorf("%d lines in 35 s:\n%s", n, out.String())
		}
	})
}

// idleListener is a listener to which no connection comes.
type idleListener struct {
	once   sync.Once
	closed chan struct{}
}

func newIdleListener() *idleListener { return &idleListener{closed: make(chan struct{})} }

func (l *idleListener) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *idleListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *idleListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
