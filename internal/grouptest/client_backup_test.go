package grouptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

// largeState gives a group a state of 40 MiB, which is more than a member queues for a client and the sockets
// hold.
func largeState(t *testing.T, n *conclave.Node) {
	t.Helper()
	for i := range 80 {
		MustPut(t, n.KV(), fmt.Sprint(i), strings.Repeat("x", 512<<10))
	}
}

// unreadBackups has a client begin backups, and read no more of them than their beginnings. A Client does not
// do so: it receives up to 64 MiB for a writer that blocks.
func unreadBackups(t *testing.T, n *conclave.Node, backups int) *hostile.Conn {
	t.Helper()
	conn := hostileClient(t, n)
	Must(t, conn.SendMessage(attachPart(new(wire.Attach))))
	for id := range uint64(backups) {
		Must(t, conn.SendMessage(request(id, "backup", 0)))
	}
	for begun := make(map[uint64]bool); len(begun) < backups; {
		begun[nextAnswer(t, conn).GetId()] = true
	}
	return conn
}

// endOfBackups reads the backups, and returns how they end.
func endOfBackups(t *testing.T, conn *hostile.Conn, backups int) (ends []wire.Failure) {
	t.Helper()
	for len(ends) < backups {
		if a := nextAnswer(t, conn); a.GetLast() {
			ends = append(ends, a.GetFailure())
		}
	}
	slices.Sort(ends)
	return ends
}

// skipIfShort skips a test that moves tens of megabytes in short mode, which the race detector's run uses: for each large buffer the detector's own
// memory has page faults, so the test would take minutes on a busy machine. What runs at the same time in it does so in tests of small values too.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it moves tens of megabytes")
	}
}

// Clients that read backups slowly keep the member from discarding what they read, so their number
// has a limit.
func TestClient_BackupsAtOnce(t *testing.T) {
	skipIfShort(t)
	g := Start(t, 1, keepConnections)
	c := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	largeState(t, g.Nodes[0])
	var slow []*hostile.Conn
	for range 4 {
		slow = append(slow, unreadBackups(t, g.Nodes[0], 1))
	}
	WantError(t, c.Backup(Bounded(t), io.Discard), conclave.ErrBusy)
	for _, conn := range slow {
		if ends := endOfBackups(t, conn, 1); ends[0] != wire.Failure_FAILURE_NONE {
			t.Errorf("a backup ends with %v", ends[0])
		}
	}
	err := c.Backup(Bounded(t), io.Discard)
	for errors.Is(err, conclave.ErrBusy) { // the member ends the last one after its answer
		err = c.Backup(Bounded(t), io.Discard)
	}
	Must(t, err)
}

// A client that reads as many backups as a member serves, and does not go on with them, keeps no
// other client from reading one: the latest of them ends.
func TestClient_BackupsOfOneClient(t *testing.T) {
	skipIfShort(t)
	g := Start(t, 1, keepConnections)
	other := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	largeState(t, g.Nodes[0])
	slow := unreadBackups(t, g.Nodes[0], 4)
	Must(t, other.Backup(Bounded(t), io.Discard))
	want := []wire.Failure{wire.Failure_FAILURE_NONE, wire.Failure_FAILURE_NONE, wire.Failure_FAILURE_NONE, wire.Failure_FAILURE_BUSY}
	if ends := endOfBackups(t, slow, 4); !slices.Equal(ends, want) {
		t.Errorf("the backups end with %v, want %v", ends, want)
	}
}

// A backup waits for its writer, for as long as that likes, and holds up nothing else of its client. It is larger
// than what a client receives ahead of its program.
func TestClient_BackupSlowWriter(t *testing.T) {
	skipIfShort(t)
	g := Start(t, 1)
	c := Dial(t, &conclave.ClientConfig{}, g.Nodes...)
	const keys = 160
	for i := range keys {
		MustPut(t, g.Nodes[0].KV(), fmt.Sprint(i), strings.Repeat("x", 512<<10))
	}
	before := heapInUse()
	reached, released := make(chan struct{}), make(chan struct{})
	var b bytes.Buffer
	done := make(chan error, 1)
	go func() {
		first := sync.OnceFunc(func() { close(reached); <-released })
		done <- c.Backup(Bounded(t), writerFunc(func(p []byte) (int, error) { first(); return b.Write(p) }))
	}()
	<-reached
	Pass(time.Second) // without a bound all of it arrives meanwhile
	MustPut(t, c.KV(), "meanwhile", "")
	g.wantHeap(before, 48<<20, "a backup whose writer blocks")
	close(released)
	Must(t, <-done)
	if b.Len() < keys*512<<10 {
		t.Errorf("a backup of %d bytes", b.Len())
	}
}

// A backup ends with its connection, also where the program has not read yet what has arrived, and no other member
// can be reached: the rest of the backup is nowhere else.
func TestClient_BackupConnectionLost(t *testing.T) {
	g := Start(t, 1)
	broken := make(chan struct{})
	lost := sync.OnceFunc(func() { close(broken) })
	var left atomic.Int64
	left.Store(-2 * breakingNever)
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		select {
		case <-broken:
			return nil, errors.New("no way")
		default:
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return breaking{closeReporter{c, lost}, &left}, err
	}
	c := Dial(t, &conclave.ClientConfig{Dial: dial}, g.Nodes...)
	largeState(t, g.Nodes[0])
	left.Store(6 << 20) // more than the client reads before it gives credit, and less than it is sent without
	written := 0
	err := c.Backup(Bounded(t), writerFunc(func(p []byte) (int, error) {
		<-broken
		written += len(p)
		return len(p), nil
	}))
	WantError(t, err, conclave.ErrIncomplete)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after %d bytes the backup waited for another connection: %v", written, err)
	}
	if written < 4<<20 {
		t.Errorf("%d bytes were written", written)
	}
}

// closeReporter is a connection that reports when it is closed.
type closeReporter struct {
	net.Conn
	closed func()
}

func (c closeReporter) Close() error {
	c.closed()
	return c.Conn.Close()
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
	t.Parallel()
	g := Start(t, 1)
	var left atomic.Int64
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return breaking{c, &left}, err
	}
	left.Store(-2 * breakingNever)
	c := Dial(t, &conclave.ClientConfig{Dial: dial}, g.Nodes...)
	for i := range 10 {
		_, err := g.Nodes[0].KV().Put(Bounded(t), fmt.Sprint(i), make([]byte, 512<<10))
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
	incomplete(c.Backup(Bounded(t), &b))
	left.Store(-2 * breakingNever)
	if b.Len() == 0 {
		t.Error("nothing was written")
	}
	WantError(t, conclave.Restore(t.Context(), t.TempDir(), &b), conclave.ErrCorrupt)

	failure := errors.New("no space left")
	incomplete(c.Backup(Bounded(t), writerFunc(func([]byte) (int, error) { return 0, failure })), failure)
	incomplete(c.Backup(Bounded(t), writerFunc(func([]byte) (int, error) { return 0, nil })), io.ErrShortWrite)
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Backup(ctx, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil })); err != nil { // nil: all of it had arrived
		incomplete(err, context.Canceled)
	}
	incomplete(g.Nodes[0].Backup(Bounded(t), writerFunc(func([]byte) (int, error) { return 0, failure })), failure)
	Must(t, c.Backup(Bounded(t), io.Discard))

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
				err := backup(Bounded(t), writerFunc(func([]byte) (int, error) { return 0, failure }))
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
