//go:build linux || darwin

package grouptest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
)

// runAlone runs a test in a process of its own, since it changes what the process may do. It
// returns true there.
func runAlone(t *testing.T) bool {
	t.Helper()
	const mark = "CONCLAVE_TEST_ALONE"
	if os.Getenv(mark) != "" {
		return true
	}
	command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	command.Env = append(os.Environ(), mark+"=1")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// descriptors are all file descriptors that a process could get.
type descriptors struct {
	t     *testing.T
	taken []*os.File
}

// limitDescriptors lets the process have few descriptors more than it has.
func limitDescriptors(t *testing.T) *descriptors {
	t.Helper()
	limit := syscall.Rlimit{Cur: 256, Max: 256}
	Must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	d := &descriptors{t: t}
	t.Cleanup(d.free)
	return d
}

// take takes every descriptor that is free.
func (d *descriptors) take() {
	d.t.Helper()
	for {
		file, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			return
		}
		Must(d.t, err)
		d.taken = append(d.taken, file)
	}
}

func (d *descriptors) free() {
	for _, file := range d.taken {
		file.Close()
	}
	d.taken = nil
}

// writer puts values, which soon need new files, until ctx is done or a put fails.
type writer struct {
	acknowledged int
	err          error
	done         chan struct{}
}

func startWriter(ctx context.Context, n *conclave.Node, prefix string) *writer {
	w := &writer{done: make(chan struct{})}
	value := make([]byte, 20<<10)
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			if _, w.err = n.KV().Put(context.Background(), fmt.Sprint(prefix, w.acknowledged), value); w.err != nil {
				return
			}
			w.acknowledged++
		}
	}()
	return w
}

// awaitShortage takes descriptors until the node waits for one.
func awaitShortage(t *testing.T, n *conclave.Node, d *descriptors) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); Pass(time.Millisecond) {
		d.take()
		h := n.Health() // one: what runs beside may give the node a descriptor at any time
		if failed, text := failedIn(h); strings.Contains(failed, "resources") {
			if !h.Live || h.Ready {
				t.Fatalf("%+v; want it live and not ready", h)
			}
			if !strings.Contains(text, syscall.EMFILE.Error()) || !strings.Contains(text, "raise the limit") {
				t.Error(text)
			}
			return
		}
	}
	t.Fatal("the node has never waited for a descriptor")
}

// The process has no file descriptors for a while. The node says that it waits, and then goes
// on: nothing is lost, neither a write nor a hold, and clients can connect.
func TestShortage_NoDescriptors(t *testing.T) {
	if !runAlone(t) {
		return
	}
	d := limitDescriptors(t)
	c := SoloConfig(t)
	c.SessionTTL = time.Hour
	seams := cluster.WithSeams(Bounded(t), cluster.Seams{TableBytes: 64 << 10})
	n, err := conclave.Open(seams, &c)
	Must(t, err)
	l := n.FencedLock("held")
	fence := MustLock(t, l)
	for round := range 3 {
		ctx, stop := context.WithCancel(t.Context())
		w := startWriter(ctx, n, fmt.Sprint(round, "-"))
		awaitShortage(t, n, d)
		if now, err := l.Fence(); now != fence || err != nil {
			t.Errorf("the hold while the node waits: %v, %v", now, err)
		}
		d.free()
		stop()
		<-w.done
		Must(t, w.err)
		AwaitHealth(t, n, "")
		for i := range w.acknowledged {
			if _, err := n.KV().Get(t.Context(), fmt.Sprint(round, "-", i)); err != nil {
				t.Errorf("write %d of %d: %v", i, w.acknowledged, err)
			}
		}
	}
	client, err := conclave.Dial(Bounded(t), &conclave.ClientConfig{Addresses: []string{c.Bind}})
	Must(t, err)
	MustLock(t, client.FencedLock("of a client"))
	Must(t, client.Close(t.Context()))
	if now, err := l.Fence(); now != fence || err != nil {
		t.Errorf("the hold: %v, %v", now, err)
	}
	Must(t, n.Close(t.Context()))
}

// A node is closed while it waits for a descriptor that never comes. Close returns, and the
// directory opens again with all that was acknowledged.
func TestShortage_Close(t *testing.T) {
	if !runAlone(t) {
		return
	}
	d := limitDescriptors(t)
	c := SoloConfig(t)
	seams := cluster.WithSeams(Bounded(t), cluster.Seams{TableBytes: 64 << 10})
	n, err := conclave.Open(seams, &c)
	Must(t, err)
	w := startWriter(t.Context(), n, "k")
	awaitShortage(t, n, d)
	_ = n.Close(Bounded(t)) // what it holds may not be released
	select {
	case <-n.Done():
	default:
		t.Error("Close has returned before the node has stopped")
	}
	<-w.done
	d.free()
	n, err = conclave.Open(seams, &c)
	Must(t, err)
	for i := range w.acknowledged {
		if _, err := n.KV().Get(t.Context(), fmt.Sprint("k", i)); err != nil {
			t.Errorf("write %d of %d: %v", i, w.acknowledged, err)
		}
	}
	Must(t, n.Close(t.Context()))
}

// The context of Open bounds its waiting. The error names the shortage, and nothing is left
// behind: the next Open succeeds.
func TestShortage_Open(t *testing.T) {
	t.Parallel()
	disk := &faultyDisk{kind: errorfs.OpCreate, reason: syscall.EMFILE}
	disk.broken.Store(true)
	memory := vfs.NewMem()
	c := conclave.Config{Dir: "data"}
	ctx := cluster.WithSeams(t.Context(), cluster.Seams{FS: errorfs.Wrap(memory, disk)})
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := conclave.Open(bounded, &c)
	WantError(t, err, syscall.EMFILE)
	waiting := make(chan error, 1)
	go func() {
		n, err := conclave.Open(ctx, &c)
		if err == nil {
			Kill(n)
		}
		waiting <- err
	}()
	disk.broken.Store(false)
	Must(t, <-waiting)
}

// The leader's disk lacks descriptors: another member leads, and the group goes on.
func TestShortage_LeaderStepsDown(t *testing.T) {
	t.Parallel()
	disks := make([]*faultyDisk, 3)
	g := Start(t, 3, Edit(func(i int, c *conclave.Config, h *cluster.Seams) {
		disks[i] = &faultyDisk{kind: errorfs.OpFileSyncData, reason: syscall.EMFILE}
		c.Dir, h.FS = "data", errorfs.Wrap(vfs.NewMem(), disks[i])
	}))
	leader := g.Leader()
	f := MustLock(t, g.Nodes[leader].FencedLock("x"))
	disks[leader].broken.Store(true)
	other := g.Nodes[(leader+1)%3]
	MustLock(t, other.FencedLock("y"))
	AwaitHealth(t, other, "")
	lacks := func() bool {
		_, text := FailedChecks(g.Nodes[leader])
		return strings.Contains(text, syscall.EMFILE.Error())
	}
	if !g.poll(g.patience, lacks) { // the others may have committed first
		t.Error("the health of the member does not tell the shortage")
	}
	disks[leader].broken.Store(false)
	AwaitHealth(t, g.Nodes[leader], "")
	if now, err := g.Nodes[leader].FencedLock("x").Info(t.Context()); err != nil || !now.Held || now.Fence != f {
		t.Errorf("%+v, %v", now, err)
	}
}
