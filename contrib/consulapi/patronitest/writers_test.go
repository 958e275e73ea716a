//go:build unix

package patronitest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// writers write a row to each node every 100 ms, and record which were accepted.
type writers struct {
	ctx    context.Context
	stop   context.CancelFunc
	wait   sync.WaitGroup
	mu     sync.Mutex
	spans  [size][]span // guarded by mu
	latest [size]bool   // guarded by mu; the last span goes on
}

// span is a time in which a node accepted each write: from the end of the first to the beginning of the last. The end of the
// last may be seen late, when another node accepts writes already.
type span struct{ from, to time.Time }

func write(t *testing.T, ports [size]int) *writers {
	w := new(writers)
	w.ctx, w.stop = context.WithCancel(context.Background())
	for i, port := range ports {
		w.wait.Go(func() { w.run(i, port) })
	}
	t.Cleanup(w.end)
	return w
}

func address(port int) string {
	return fmt.Sprintf("postgres://postgres:secret@127.0.0.1:%d/postgres", port)
}

func (w *writers) end() {
	w.stop()
	w.wait.Wait()
}

func (w *writers) run(i, port int) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var conn *pgx.Conn
	for {
		ok := false
		ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second) // a slow write is accepted as well
		if conn == nil {
			conn, _ = pgx.Connect(ctx, address(port))
		}
		began := time.Now()
		if conn != nil {
			// A replica that waits for no other shows what a client could have been acknowledged.
			_, err := conn.Exec(ctx, "set synchronous_commit = local; create table if not exists written (node int); insert into written values ("+fmt.Sprint(i)+")")
			if ok = err == nil; !ok && conn.IsClosed() {
				conn = nil
			}
		}
		cancel()
		w.record(i, ok, began)
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			if conn != nil {
				closing, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = conn.Close(closing)
				cancel()
			}
			return
		}
	}
}

func (w *writers) record(i int, ok bool, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ok && !w.latest[i]:
		now := time.Now()
		w.spans[i] = append(w.spans[i], span{now, now})
	case ok:
		if last := &w.spans[i][len(w.spans[i])-1]; began.After(last.to) {
			last.to = began
		}
	}
	w.latest[i] = ok
}

// accepting returns the node that accepts writes now, and -1 if none does.
func (w *writers) accepting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Index(w.latest[:], true)
}

// check fails the test if two nodes accepted writes at once, or none did for longer than a time.
func (w *writers) check(t *testing.T, longest time.Duration) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	type stretch struct {
		span
		node int
	}
	var all []stretch
	for i, spans := range w.spans {
		for _, s := range spans {
			all = append(all, stretch{s, i})
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.from.Compare(b.from) })
	var report strings.Builder
	var last stretch
	for i, s := range all {
		fmt.Fprintf(&report, "\nnode%d accepted writes from %s to %s", s.node, s.from.Format("15:04:05.00"), s.to.Format("15:04:05.00"))
		switch gap := s.from.Sub(last.to); {
		case i == 0:
		case gap < 0 && s.node != last.node:
			t.Errorf("node%d and node%d accepted writes at once for %v", last.node, s.node, -gap)
		case gap > longest:
			t.Errorf("no node accepted writes for %v", gap)
		}
		if s.to.After(last.to) {
			last = s
		}
	}
	if idle := time.Since(last.to); len(all) == 0 || idle > longest {
		t.Errorf("no node accepts writes at the end, for %v", idle)
	}
	t.Log(report.String())
}
