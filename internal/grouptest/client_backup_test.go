package grouptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
)

// held blocks at its first write until it is released.
type held struct{ reached, released chan struct{} }

func (h held) Write(p []byte) (int, error) {
	select {
	case h.reached <- struct{}{}:
	default: // it has been reached before
	}
	<-h.released
	return len(p), nil
}

// Clients that read backups slowly keep the member from discarding what they read, so their number
// has a limit.
func TestClient_BackupsAtOnce(t *testing.T) {
	g := Start(t, 1, LongSessions)
	c := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	for i := range 40 { // more than the connection's queues
		_, err := c.KV().Put(Within(t, patience), fmt.Sprint(i), make([]byte, 512<<10))
		Must(t, err)
	}
	h := held{make(chan struct{}, 1), make(chan struct{})}
	results := make(chan error, 4)
	for range 4 {
		go func() { results <- c.Backup(Within(t, patience), h) }()
		<-h.reached
	}
	WantError(t, c.Backup(Within(t, patience), io.Discard), conclave.ErrBusy)
	close(h.released)
	for range 4 {
		Must(t, <-results)
	}
	err := c.Backup(Within(t, patience), io.Discard)
	for errors.Is(err, conclave.ErrBusy) { // the member ends the last one after its answer
		err = c.Backup(Within(t, patience), io.Discard)
	}
	Must(t, err)
}

// A client that reads as many backups as a member serves, and does not go on with them, keeps no
// other client from reading one: the latest of them ends.
func TestClient_BackupsOfOneClient(t *testing.T) {
	g := Start(t, 1, LongSessions)
	c, other := Dial(t, &conclave.ClientConfig{}, g.Nodes...), Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	for i := range 40 { // more than the connection's queues
		_, err := c.KV().Put(Within(t, patience), fmt.Sprint(i), make([]byte, 512<<10))
		Must(t, err)
	}
	h := held{make(chan struct{}, 1), make(chan struct{})}
	results := make(chan error, 4)
	for range 4 {
		go func() { results <- c.Backup(Within(t, patience), h) }()
		<-h.reached
	}
	Must(t, other.Backup(Within(t, patience), io.Discard))
	close(h.released)
	ended := 0
	for range 4 {
		if err := <-results; errors.Is(err, conclave.ErrIncomplete) {
			ended++
		} else {
			Must(t, err)
		}
	}
	if ended != 1 {
		t.Errorf("%d backups were ended", ended)
	}
}

// breaking is a connection that ends after some bytes, unless they are negative.
type breaking struct {
	net.Conn
	left *atomic.Int64
}

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.left.Add(-int64(n)) < 0 && b.left.Load() > -breakingNever {
		_ = b.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

const breakingNever = 1 << 40

// A backup that breaks off is no complete one that may be old: a caller that keeps those would
// replace a good one.
func TestClient_BackupBroken(t *testing.T) {
	g := Start(t, 1, LongSessions)
	var left atomic.Int64
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return breaking{c, &left}, err
	}
	left.Store(-2 * breakingNever)
	c := Dial(t, &conclave.ClientConfig{Dial: dial}, g.Nodes...)
	for i := range 10 {
		_, err := g.Nodes[0].KV().Put(Within(t, patience), fmt.Sprint(i), make([]byte, 512<<10))
		Must(t, err)
	}
	incomplete := func(err error, causes ...error) {
		t.Helper()
		WantError(t, err, conclave.ErrIncomplete)
		for _, cause := range causes {
			WantError(t, err, cause)
		}
		if errors.Is(err, conclave.ErrUnavailable) || errors.Is(err, conclave.ErrUnknown) {
			t.Errorf("%v is also that of a complete backup, or of a call that may have had an effect", err)
		}
	}
	var b bytes.Buffer
	// Not at the first write: by then all of it may have arrived.
	left.Store(3 << 20)
	incomplete(c.Backup(Within(t, patience), &b))
	left.Store(-2 * breakingNever)
	if b.Len() == 0 {
		t.Error("nothing was written")
	}
	WantError(t, conclave.Restore(t.Context(), t.TempDir(), &b), conclave.ErrCorrupt)

	failure := errors.New("no space left")
	incomplete(c.Backup(Within(t, patience), writerFunc(func([]byte) (int, error) { return 0, failure })), failure)
	incomplete(c.Backup(Within(t, patience), writerFunc(func([]byte) (int, error) { return 0, nil })), io.ErrShortWrite)
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Backup(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })); err != nil { // nil: all of it had arrived
		incomplete(err, context.Canceled)
	}
	incomplete(g.Nodes[0].Backup(Within(t, patience), writerFunc(func([]byte) (int, error) { return 0, failure })), failure)
	Must(t, c.Backup(Within(t, patience), io.Discard))

	g.Kill(0)
	incomplete(c.Backup(Within(t, 300*time.Millisecond), io.Discard), context.DeadlineExceeded)
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// An error of this package that the writer of a backup returns, perhaps since it writes to a group,
// is not taken for what it means of a backup: that this one is complete, or that nothing was written.
func TestBackup_WriterOfGroup(t *testing.T) {
	t.Parallel()
	BothWays(t, func(t *testing.T, a Access) {
		backup := a.(interface {
			Backup(ctx context.Context, w io.Writer) error
		}).Backup
		for _, sentinel := range []error{
			conclave.ErrUnavailable, conclave.ErrBusy, conclave.ErrUnknown, conclave.ErrClosed, conclave.ErrCorrupt, conclave.ErrUpgradeRequired,
			io.EOF, io.ErrUnexpectedEOF,
		} {
			for _, failure := range []error{sentinel, fmt.Errorf("store: %w", sentinel), &conclave.Error{Op: "put", Name: "part", Err: sentinel}} {
				err := backup(Within(t, patience), writerFunc(func([]byte) (int, error) { return 0, failure }))
				WantError(t, err, conclave.ErrIncomplete)
				for _, misleading := range []error{conclave.ErrUnavailable, conclave.ErrBusy, conclave.ErrUnknown, conclave.ErrClosed, conclave.ErrCorrupt} {
					if errors.Is(err, misleading) {
						t.Errorf("the writer's %T %v: %v", failure, failure, err)
					}
				}
				if !strings.Contains(err.Error(), sentinel.Error()) {
					t.Errorf("%v does not contain the writer's error %v", err, failure)
				}
			}
		}
	})
}
