package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// cost is one line of what an idle group costs, for each member.
type cost struct {
	name  string
	value float64
	unit  string
	text  string // what is counted
	known bool   // the system counts it
}

func (c cost) String() string {
	value := "-"
	if c.known {
		value = strconv.FormatFloat(c.value, 'f', 1, 64)
	}
	return fmt.Sprintf("%-18s %12s %-8s %s\n", c.name, value, c.unit, c.text)
}

// usage is what the process has used so far. All members are in it, so it is divided by them.
type usage struct {
	at   time.Time
	cpu  time.Duration
	io   map[string]float64 // of /proc/self/io; nil: the system has none
	sent sent
}

func use(network *network) (u usage, err error) {
	u.at, u.sent, u.io = time.Now(), network.sent(), processIO()
	u.cpu, err = cpuTime()
	return u, err
}

// runIdle measures a group that has been formed and that no caller uses: no node has a session,
// so what remains is heartbeats, gossip, and one renewal of each process in 20 s.
func runIdle(ctx context.Context, o options, out io.Writer) error {
	heap, goroutines := heapInUse(), runtime.NumGoroutine()
	network := new(network)
	dir := filepath.Join(o.dir, "idle")
	defer func() { _ = os.RemoveAll(dir) }() // of this program
	g, err := startShape(ctx, dir, shape{voters: members, unused: true, dial: network.dial, wrap: network.wrap})
	if err != nil {
		return err
	}
	defer g.close()
	if err := pass(ctx, o.idle/4); err != nil { // a new group raises its feature level, and connects
		return err
	}
	if err := createIdle(ctx, g, o.groups, o.held); err != nil {
		return err
	}
	prof, err := newProfile(o.profile)
	if err != nil {
		return err
	}
	prof.start()
	before, err := use(network)
	if err != nil {
		return err
	}
	if err := pass(ctx, o.idle); err != nil {
		return err
	}
	after, err := use(network)
	if err != nil {
		return err
	}
	prof.stop()
	costs := before.until(after)
	costs = append(costs,
		cost{"goroutines", float64(runtime.NumGoroutine()-goroutines) / members, "", "of the group, beyond those before it", true},
		cost{"heap", (float64(heapInUse()) - float64(heap)) / members / (1 << 10), "KiB", "live after a collection, beyond that before the group", true},
	)
	holds := ""
	if o.held {
		holds = " with a lock held in each"
	}
	fmt.Fprintf(out, "a group of %d that no caller uses, with %d further groups%s, for %v; of each member:\n", members, o.groups, holds, after.at.Sub(before.at).Round(time.Millisecond))
	for _, c := range costs {
		fmt.Fprint(out, c)
	}
	return writeFile(o.csv, costs, writeIdleCSV)
}

// untilQuiet is how long a further group that no process uses ticks: until the registrations of its processes have expired, and what they
// have changed is on the disk.
const untilQuiet = 3 * time.Minute

// untilHeld is how long what the creation of groups leaves to do takes: checkpoints, and moves of leaders.
const untilHeld = 20 * time.Second

// createIdle creates further groups, and waits until they are quiet, or acquires a lock in each.
func createIdle(ctx context.Context, g group, groups int, held bool) error {
	if groups == 0 {
		return nil
	}
	var names []string
	for i := range groups {
		names = append(names, fmt.Sprint("idle-", i))
	}
	list, err := furtherOf(ctx, g, names...)
	switch {
	case err != nil:
		return err
	case !held:
		return pass(ctx, untilQuiet)
	}
	for _, of := range list {
		if _, err := of.FencedLock("held").Lock(ctx); err != nil {
			return err
		}
	}
	return pass(ctx, untilHeld)
}

// pass waits: the subject is what happens in that time.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// until returns what was used between two moments, by second and member.
func (u usage) until(v usage) []cost {
	seconds := v.at.Sub(u.at).Seconds()
	each := func(x float64) float64 { return x / seconds / members }
	ofIO := func(name, field, unit, text string) cost {
		return cost{name, each(v.io[field] - u.io[field]), unit, field + " of /proc/self/io: " + text, v.io != nil}
	}
	return []cost{
		{"cpu", each(float64((v.cpu - u.cpu).Microseconds()) / 1000), "ms/s", "user and system time of the process (getrusage)", true},
		ofIO("disk", "write_bytes", "B/s", "pages that the process had written to storage, whole ones"),
		ofIO("written", "wchar", "B/s", "bytes of all write calls, to files and connections"),
		ofIO("read", "rchar", "B/s", "bytes of all read calls, from files and connections"),
		ofIO("write calls", "syscw", "1/s", "to files and connections; a sync is not counted"),
		ofIO("read calls", "syscr", "1/s", "from files and connections, those without data included"),
		{"network", each(float64(v.sent.bytes - u.sent.bytes)), "B/s", "bytes that members write to connections, raft and gossip; without TCP's own", true},
		{"network writes", each(float64(v.sent.writes - u.sent.writes)), "1/s", "calls that write to connections; one may have several messages", true},
	}
}

// heapInUse returns the bytes of live objects.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // frees what finalizers and pools kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func writeIdleCSV(to io.Writer, costs []cost) error {
	w := csv.NewWriter(to)
	_ = w.Write([]string{"cost", "value_of_a_member", "unit"}) // see Error below
	for _, c := range costs {
		value := ""
		if c.known {
			value = strconv.FormatFloat(c.value, 'g', 6, 64)
		}
		_ = w.Write([]string{c.name, value, c.unit})
	}
	w.Flush()
	return w.Error()
}
