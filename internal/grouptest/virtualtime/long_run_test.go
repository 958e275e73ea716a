package virtualtime

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// longRun is a group of three over many hours. Member 0 is never restarted: its holds
// must last, and its watch must be complete.
type longRun struct {
	*grouptest.Group
	hour    int
	kept    *conclave.FencedLock // of member 0, under a session with a lock-delay
	fence   conclave.Fence       // of kept
	checked *conclave.Session    // of member 0; depends on a check
	last    conclave.Fence       // of the short holds
	watched chan string
}

// The intervals of a group that runs for days within a minute. The seams slow down
// gossip and the keep-alives of connections.
const (
	slowHeartbeat = 10 * time.Second
	slowdown      = 40
	slowCheckTTL  = 20 * time.Minute
	slowCall      = 20 * slowHeartbeat // for calls that may meet an election
	tableBytes    = 1 << 20            // so that the tables fill up within hours
	// registrationTTL is how long the group keeps a silent process's registration.
	registrationTTL = time.Minute
)

// A group runs for days, mostly idle, with a few locks, changes of leader, restarts
// and partitions. Nothing is lost, renewals go on, and memory, goroutines and disks
// do not grow. It measures memory, so that no other test may run beside it.
func TestLongRun(t *testing.T) {
	skipIfShort(t)
	hours := 12 // each event of runHour, and four measurements
	if *long {
		hours = 100
	}
	every := max(hours/6, 3)
	slow := grouptest.Edit(func(_ int, c *conclave.Config, s *cluster.Seams) {
		c.HeartbeatInterval, c.ElectionTimeout, c.SessionTTL = slowHeartbeat, 3*slowHeartbeat, 10*time.Minute
		s.FS, s.Slow, s.KeepEntries, s.TableBytes = vfs.NewMem(), slowdown, 500, tableBytes
	})
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		d := &longRun{Group: g, watched: make(chan string, 1000)}
		d.setUp()
		began := time.Now()
		var used []usage
		for d.hour = range hours {
			d.runHour()
			d.check()
			if (d.hour+1)%every == 0 {
				used = append(used, d.usage())
			}
			pass(time.Until(began.Add(time.Duration(d.hour+1) * time.Hour)))
		}
		d.wantKept()
		t.Logf("%d hours; every %d hours: %+v", hours, every, used)
		wantSteady(t, used)
	}, slow)
}

// usage is what a group uses: memory without the disks, which are in memory here,
// disks, and goroutines.
type usage struct {
	heapKiB, diskKiB int64
	goroutines       int
}

func (d *longRun) usage() usage {
	var disk int64
	for _, h := range d.Seams {
		disk += diskBytes(d.T, h.FS, "data")
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{(int64(m.HeapAlloc) - disk) >> 10, disk >> 10, runtime.NumGoroutine()}
}

func diskBytes(t testing.TB, fs vfs.FS, path string) (bytes int64) {
	info, err := fs.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !info.IsDir() {
		return info.Size()
	}
	names, err := fs.List(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		bytes += diskBytes(t, fs, fs.PathJoin(path, name))
	}
	return bytes
}

// wantSteady compares the last hours with the first after the log had reached its
// length. A file in memory may use a quarter more than its size, and the database
// has a log of up to 1 MiB for each table.
func wantSteady(t *testing.T, all []usage) {
	if len(all) < 4 {
		return
	}
	first, last := all[1], all[len(all)-1]
	if last.heapKiB > first.heapKiB+4<<10 {
		t.Errorf("memory has grown from %d to %d KiB", first.heapKiB, last.heapKiB)
	}
	if last.diskKiB > 3*16<<10 {
		t.Errorf("the disks hold %d KiB", last.diskKiB)
	}
	// Links for gossip's packets come and go, with a dozen goroutines for each of three pairs of members.
	const links = 3 * 12
	byGoroutines := func(x, y usage) int { return cmp.Compare(x.goroutines, y.goroutines) }
	early, late := slices.MaxFunc(all[1:4], byGoroutines), slices.MinFunc(all[len(all)-3:], byGoroutines)
	if late.goroutines > early.goroutines+links+10 {
		t.Errorf("%d goroutines at least; %d at most before", late.goroutines, early.goroutines)
	}
}

// setUp acquires the holds that must last.
func (d *longRun) setUp() {
	n := d.Nodes[0]
	s := grouptest.MustSession(d.T, n, &conclave.SessionConfig{TTL: 6 * time.Hour, LockDelay: time.Minute, NoChecks: true})
	d.kept = s.FencedLock("kept")
	d.fence = grouptest.MustLock(d.T, d.kept)
	check, err := n.RegisterCheck(d.T.Context(), "passing", slowCheckTTL)
	if err != nil {
		d.T.Fatal(err)
	}
	d.checked = grouptest.MustSession(d.T, n, &conclave.SessionConfig{TTL: 24 * time.Hour, Checks: []string{"passing"}})
	go func() {
		for check.Pass(d.T.Context()) == nil {
			select {
			case <-time.After(slowCheckTTL / 2): // virtual
			case <-d.T.Context().Done():
			}
		}
	}()
	go func() {
		defer close(d.watched)
		for e, err := range n.KV().Watch(d.T.Context(), "hour/", 0) {
			if err != nil {
				return
			}
			d.watched <- string(e.Entry.Value)
		}
	}()
	pass(time.Minute)
}

// runHour runs one event, and writes this hour's key.
func (d *longRun) runHour() {
	events := []func(){
		d.transfer, d.work, d.killMember, d.isolateMember, d.forceClose, d.restartMember, d.work, d.isolateLeader, d.expireCheck, d.fallBehind, d.work,
	}
	events[d.hour%len(events)]()
	d.write()
}

func (d *longRun) transfer() {
	d.Leader()
	if err := d.Nodes[d.Leader()].TransferLeadership(grouptest.Within(d.T, slowCall), 0); err != nil {
		d.T.Errorf("hour %d: %v", d.hour, err)
	}
	d.work()
}

// work has each member lock for a minute.
func (d *longRun) work() {
	for i, n := range d.Nodes {
		l := n.FencedLock(fmt.Sprint("job-", (d.hour+i)%5))
		f, err := l.Lock(grouptest.Within(d.T, slowCall))
		if err != nil {
			d.T.Fatalf("hour %d, member %d: %v", d.hour, i, err)
		}
		if f <= d.last {
			d.T.Errorf("hour %d: fence %v after %v", d.hour, f, d.last)
		}
		d.last = f
		pass(time.Minute)
		if err := l.Unlock(grouptest.Within(d.T, slowCall)); err != nil {
			d.T.Errorf("hour %d: %v", d.hour, err)
		}
	}
}

// victim is the member to fail next, 1 and 2 by turns.
func (d *longRun) victim() int { return 1 + d.hour/11%2 }

func (d *longRun) killMember() {
	d.Kill(d.victim())
	pass(5 * time.Minute)
	d.Start(d.victim())
	d.work()
}

func (d *longRun) restartMember() {
	d.Close(d.victim())
	pass(time.Minute)
	d.Start(d.victim())
	d.work()
}

// fallBehind stops a member for so long that it needs a snapshot.
func (d *longRun) fallBehind() {
	d.Kill(d.victim())
	pass(50 * time.Minute)
	d.Start(d.victim())
}

func (d *longRun) isolateMember() { d.isolate(d.victim()) }

func (d *longRun) isolateLeader() { d.isolate(d.Leader()) }

func (d *longRun) isolate(i int) {
	d.Net.Isolate(i)
	pass(5 * time.Minute)
	d.Net.Rejoin(i)
	pass(5 * time.Minute)
	d.Leader()
	d.work()
}

// forceClose closes a session whose lock another session wants.
func (d *longRun) forceClose() {
	s := grouptest.MustSession(d.T, d.Nodes[1], &conclave.SessionConfig{TTL: 6 * time.Hour, LockDelay: time.Minute, NoChecks: true})
	if _, err := s.FencedLock("delayed").Lock(grouptest.Within(d.T, slowCall)); err != nil {
		d.T.Fatalf("hour %d: %v", d.hour, err)
	}
	pass(30 * time.Minute)
	began := time.Now()
	if err := d.Nodes[2].CloseSession(grouptest.Within(d.T, slowCall), s.ID()); err != nil {
		d.T.Errorf("hour %d: %v", d.hour, err)
	}
	l := d.Nodes[2].FencedLock("delayed")
	if _, err := l.Lock(grouptest.Within(d.T, slowCall)); err != nil {
		d.T.Fatalf("hour %d: %v", d.hour, err)
	}
	wantBetween(d.T, "the grant", time.Now(), began.Add(time.Minute), began.Add(time.Minute+slowHeartbeat))
	if err := l.Unlock(grouptest.Within(d.T, slowCall)); err != nil {
		d.T.Errorf("hour %d: %v", d.hour, err)
	}
}

// expireCheck does not refresh a check: the session that depends on it ends before the
// check's TTL has passed.
func (d *longRun) expireCheck() {
	check, err := d.Nodes[1].RegisterCheck(grouptest.Within(d.T, slowCall), "not refreshed", slowCheckTTL)
	if err != nil {
		d.T.Fatalf("hour %d: %v", d.hour, err)
	}
	began := time.Now()
	s := grouptest.MustSession(d.T, d.Nodes[1], &conclave.SessionConfig{TTL: time.Hour, LockDelay: conclave.NoLockDelay, Checks: []string{"not refreshed"}})
	<-s.Done()
	// The process ends the session by its own clock, a hundredth of the TTL before the group.
	wantBetween(d.T, "the end of the session", time.Now(), began.Add(slowCheckTTL-slowCheckTTL/100), began.Add(slowCheckTTL+slowHeartbeat))
	if err := check.Deregister(grouptest.Within(d.T, slowCall)); err != nil {
		d.T.Errorf("hour %d: %v", d.hour, err)
	}
}

// write puts this hour's key, which the watch must yield next.
func (d *longRun) write() {
	value := fmt.Sprint("hour ", d.hour)
	_, err := d.Nodes[d.hour%3].KV().Put(grouptest.Within(d.T, slowCall), fmt.Sprint("hour/", d.hour%7), []byte(value))
	if err != nil {
		d.T.Fatalf("hour %d: %v", d.hour, err)
	}
	switch got, ok := <-d.watched; {
	case !ok:
		d.T.Fatalf("hour %d: the watch has ended", d.hour)
	case got != value:
		d.T.Errorf("hour %d: the watch shows %q", d.hour, got)
	}
}

// check checks that the lasting holds, and no others, exist.
func (d *longRun) check() {
	if f, err := d.kept.Fence(); err != nil || f != d.fence {
		d.T.Fatalf("hour %d: the kept lock has fence %v, %v", d.hour, f, err)
	}
	if err := d.checked.Err(); err != nil {
		d.T.Fatalf("hour %d: %v", d.hour, err)
	}
	n := d.Nodes[d.hour%3]
	info, ok := grouptest.FindSession(d.T, n, d.checked.ID())
	if silent := info.TTL - info.Remaining; !ok || silent > 2*registrationTTL {
		d.T.Errorf("hour %d: no renewal for %v: %+v", d.hour, silent, info)
	}
	if locks := grouptest.Locks(d.T, n, ""); len(locks) != 1 || locks[0].Fence != d.fence {
		d.T.Errorf("hour %d: locks %+v", d.hour, locks)
	}
	if sessions := grouptest.Sessions(d.T, n); len(sessions) > 2+3 { // each member may have its own
		d.T.Errorf("hour %d: sessions %+v", d.hour, sessions)
	}
}

// wantKept checks that the first holder is the last, on every member, and can unlock.
func (d *longRun) wantKept() {
	for i, n := range d.Nodes {
		info, err := n.FencedLock("kept").Info(grouptest.Within(d.T, slowCall))
		if err != nil || info.Fence != d.fence {
			d.T.Errorf("member %d: %+v, %v", i, info, err)
		}
	}
	if err := d.kept.Unlock(grouptest.Within(d.T, slowCall)); err != nil {
		d.T.Error(err)
	}
}
