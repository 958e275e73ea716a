package virtualtime

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave/cluster"
)

// days is a group of three over many hours, mostly idle. Member 0 is never
// restarted: what it holds has to last, and what it watches has to be complete.
type days struct {
	*grouptest.Group
	hour     int
	standing *FencedLock // of member 0, under a session with a lock-delay
	fence    Fence       // of it
	checked  *Session    // of member 0; lives as long as its check passes
	last     Fence       // given out by the jobs
	watched  chan string
}

// The clocks of a group that is to get through days in a minute. Gossip and the
// connections' signs of life are slowed down by the seams.
const (
	daysBeat = 10 * time.Second
	daysSlow = 40
	passing  = 20 * time.Minute // the TTL of a check
)

// A group lives for days, mostly idle, with locks now and then, changes of the
// leader, restarts, partitions and absences. Nothing is lost, renewals go on,
// and what it takes in memory does not grow.
func TestBubbleDays(t *testing.T) {
	hours := 100
	if testing.Short() {
		hours = 6
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // half of the time goes to collecting otherwise
	inBubble(t, 3, func(c *Config, h *cluster.Seams) {
		c.HeartbeatInterval, c.ElectionTimeout, c.SessionTTL = daysBeat, 3*daysBeat, 10*time.Minute
		h.FS, h.Slow, h.KeepEntries = vfs.NewMem(), daysSlow, 500
	}, func(g *grouptest.Group) {
		d := &days{bubbleGroup: g, watched: make(chan string, 1000)}
		d.begin()
		began := time.Now()
		var used []usage
		for d.hour = range hours {
			d.play()
			d.look()
			if d.hour%10 == 9 {
				used = append(used, d.usage())
			}
			grouptest.Pass(time.Until(began.Add(time.Duration(d.hour+1) * time.Hour)))
		}
		d.end()
		t.Logf("%d hours; every 10 hours: %+v", hours, used)
		wantSteady(t, used)
	})
}

// usage is what a group takes at one moment: memory in use but for the disks,
// which are in memory here, the disks, and goroutines.
type usage struct {
	heapKiB, diskKiB int64
	goroutines       int
}

func (d *days) usage() usage {
	var disk int64
	for _, h := range d.Seams {
		disk += diskBytes(d.t, h.FS, "data")
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{(int64(m.HeapAlloc) - disk) >> 10, disk >> 10, runtime.NumGoroutine()}
}

func diskBytes(t *testing.T, fs vfs.FS, path string) (bytes int64) {
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

// wantSteady compares the last hours with the first, when the log had what it
// keeps. A file in memory may take a quarter more than its bytes, and the
// database lets its log grow to 4 MiB and keeps a second one.
func wantSteady(t *testing.T, all []usage) {
	if len(all) < 4 {
		return
	}
	first, last := all[1], all[len(all)-1]
	if last.heapKiB > first.heapKiB+4<<10 {
		t.Errorf("the memory in use has grown from %d to %d KiB", first.heapKiB, last.heapKiB)
	}
	if last.diskKiB > 3*16<<10 {
		t.Errorf("the disks hold %d KiB", last.diskKiB)
	}
	if last.goroutines > first.goroutines+10 {
		t.Errorf("there are %d goroutines, after %d", last.goroutines, first.goroutines)
	}
}

// begin takes what is to last.
func (d *days) begin() {
	n := d.Nodes[0]
	s := grouptest.MustSession(d.t, n, &SessionConfig{TTL: 6 * time.Hour, LockDelay: time.Minute, Checks: NoChecks})
	d.standing = s.FencedLock("standing")
	d.fence = grouptest.MustLock(d.t, d.standing)
	check, err := n.RegisterCheck(d.t.Context(), "well", passing)
	if err != nil {
		d.t.Fatal(err)
	}
	d.checked = grouptest.MustSession(d.t, n, &SessionConfig{TTL: 24 * time.Hour, Checks: []string{"well"}})
	go func() {
		for check.Pass(d.t.Context()) == nil {
			select {
			case <-time.After(passing / 2): // virtual
			case <-d.t.Context().Done():
			}
		}
	}()
	go func() {
		defer close(d.watched)
		for e, err := range n.KV().Watch(d.t.Context(), "hour/", 0) {
			if err != nil {
				return
			}
			d.watched <- string(e.Entry.Value)
		}
	}()
	grouptest.Pass(time.Minute)
}

// play is what an hour brings.
func (d *days) play() {
	events := []func(){
		d.transfer, d.work, d.killed, d.cutOff, d.delayed, d.restarted, d.work, d.leaderCut, d.silentCheck, d.away, d.work,
	}
	events[d.hour%len(events)]()
	d.write()
}

// daysPatience is for calls that may meet an election.
const daysPatience = 20 * daysBeat

func (d *days) transfer() {
	d.Leader(-1)
	if err := d.Nodes[d.Leader(-1)].TransferLeadership(grouptest.Within(d.t, daysPatience), 0); err != nil {
		d.t.Errorf("hour %d: %v", d.hour, err)
	}
	d.work()
}

// work has each member lock for a while; fences rise.
func (d *days) work() {
	for i, n := range d.Nodes {
		l := n.FencedLock(fmt.Sprint("job-", (d.hour+i)%5))
		f, err := l.Lock(grouptest.Within(d.t, daysPatience))
		if err != nil {
			d.t.Fatalf("hour %d, member %d: %v", d.hour, i, err)
		}
		if f <= d.last {
			d.t.Errorf("hour %d: fence %v after %v", d.hour, f, d.last)
		}
		d.last = f
		grouptest.Pass(time.Minute)
		if err := l.Unlock(grouptest.Within(d.t, daysPatience)); err != nil {
			d.t.Errorf("hour %d: %v", d.hour, err)
		}
	}
}

// victim is a member that may go, by turns.
func (d *days) victim() int { return 1 + d.hour/11%2 }

func (d *days) killed() {
	d.Kill(d.victim())
	grouptest.Pass(5 * time.Minute)
	d.Start(d.victim())
	d.work()
}

func (d *days) restarted() {
	d.Close(d.victim())
	grouptest.Pass(time.Minute)
	d.Start(d.victim())
	d.work()
}

// away is an absence of hours: the log does not reach back so far, and the
// member is sent the state.
func (d *days) away() {
	d.Kill(d.victim())
	grouptest.Pass(50 * time.Minute)
	d.Start(d.victim())
}

func (d *days) cutOff() { d.cut(d.victim()) }

func (d *days) leaderCut() { d.cut(d.Leader(-1)) }

func (d *days) cut(i int) {
	d.isolate(i, true)
	grouptest.Pass(5 * time.Minute)
	d.isolate(i, false)
	grouptest.Pass(5 * time.Minute)
	d.Leader(-1)
	d.work()
}

// delayed ends a session by force while another waits for what it holds.
func (d *days) delayed() {
	s := grouptest.MustSession(d.t, d.Nodes[1], &SessionConfig{TTL: 6 * time.Hour, LockDelay: time.Minute, Checks: NoChecks})
	if _, err := s.FencedLock("delayed").Lock(grouptest.Within(d.t, daysPatience)); err != nil {
		d.t.Fatalf("hour %d: %v", d.hour, err)
	}
	grouptest.Pass(30 * time.Minute)
	began := time.Now()
	if err := d.Nodes[2].CloseSession(grouptest.Within(d.t, daysPatience), s.ID()); err != nil {
		d.t.Errorf("hour %d: %v", d.hour, err)
	}
	l := d.Nodes[2].FencedLock("delayed")
	if _, err := l.Lock(grouptest.Within(d.t, daysPatience)); err != nil {
		d.t.Fatalf("hour %d: %v", d.hour, err)
	}
	grouptest.WantBetween(d.t, "the grant", time.Now(), began.Add(time.Minute), began.Add(time.Minute+daysBeat))
	if err := l.Unlock(grouptest.Within(d.t, daysPatience)); err != nil {
		d.t.Errorf("hour %d: %v", d.hour, err)
	}
}

// silentCheck lets a check fall silent: the session that depends on it ends when
// its TTL has passed.
func (d *days) silentCheck() {
	check, err := d.Nodes[1].RegisterCheck(grouptest.Within(d.t, daysPatience), "silent", passing)
	if err != nil {
		d.t.Fatalf("hour %d: %v", d.hour, err)
	}
	began := time.Now()
	s := grouptest.MustSession(d.t, d.Nodes[1], &SessionConfig{TTL: time.Hour, LockDelay: NoLockDelay, Checks: []string{"silent"}})
	<-s.Done()
	grouptest.WantBetween(d.t, "the end of the session", time.Now(), began.Add(passing), began.Add(passing+daysBeat))
	if err := check.Deregister(grouptest.Within(d.t, daysPatience)); err != nil {
		d.t.Errorf("hour %d: %v", d.hour, err)
	}
}

// write puts this hour's key, which the watch has to show next.
func (d *days) write() {
	value := fmt.Sprint("hour ", d.hour)
	_, err := d.Nodes[d.hour%3].KV().Put(grouptest.Within(d.t, daysPatience), fmt.Sprint("hour/", d.hour%7), []byte(value))
	if err != nil {
		d.t.Fatalf("hour %d: %v", d.hour, err)
	}
	switch got, ok := <-d.watched; {
	case !ok:
		d.t.Fatalf("hour %d: the watch has ended", d.hour)
	case got != value:
		d.t.Errorf("hour %d: the watch shows %q", d.hour, got)
	}
}

// look checks what has to last, and that nothing else does.
func (d *days) look() {
	if f, err := d.standing.Fence(); err != nil || f != d.fence {
		d.t.Fatalf("hour %d: the standing lock has fence %v, %v", d.hour, f, err)
	}
	if err := d.checked.Err(); err != nil {
		d.t.Fatalf("hour %d: %v", d.hour, err)
	}
	if silent := time.Since(acknowledged(d.checked)); silent > 2*incarnationTTL {
		d.t.Errorf("hour %d: no renewal was acknowledged for %v", d.hour, silent)
	}
	locks, err := d.Nodes[d.hour%3].Locks(grouptest.Within(d.t, daysPatience), "")
	if err != nil || len(locks) != 1 || locks[0].Fence != d.fence {
		d.t.Errorf("hour %d: locks %+v, %v", d.hour, locks, err)
	}
	sessions, err := d.Nodes[d.hour%3].Sessions(grouptest.Within(d.t, daysPatience))
	if err != nil || len(sessions) > 2+3 { // the members have one of their own each
		d.t.Errorf("hour %d: sessions %+v, %v", d.hour, sessions, err)
	}
}

// end checks that the last holders are the first, and gives everything back.
func (d *days) end() {
	for i, n := range d.Nodes {
		info, err := n.FencedLock("standing").Info(grouptest.Within(d.t, daysPatience))
		if err != nil || info.Fence != d.fence {
			d.t.Errorf("member %d: %+v, %v", i, info, err)
		}
	}
	if err := d.standing.Unlock(grouptest.Within(d.t, daysPatience)); err != nil {
		d.t.Error(err)
	}
}
