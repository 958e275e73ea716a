package virtualtime

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// A disk whose every sync takes two election timeouts: its member gives leadership to one
// with a healthy disk, and does not win it back.
func TestLeadership_SlowDisk(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	disks := make([]*laggingDisk, 3)
	inMembershipBubble(t, 3, func(g *membership) {
		slow := g.Leader()
		leads := func() bool { return g.Nodes[slow].Status().Leader == g.Nodes[slow].Status().ID }
		disks[slow].set(2 * election)
		var open openNodes
		for _, i := range g.Others(slow) {
			open.add(g.Nodes[i])
		}
		stop := g.load(open.get)
		for deadline := time.Now().Add(time.Minute); leads(); pass(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				g.T.Fatal("the member with the slow disk leads for a minute")
			}
		}
		won := 0
		for range 600 {
			pass(100 * time.Millisecond)
			if leads() {
				won++
			}
		}
		if won > 0 {
			g.T.Errorf("the member with the slow disk leads again, in %d of 600 looks", won)
		}
		if n := stop(); n < 100 {
			g.T.Errorf("%d grants in a minute", n)
		}
		disks[slow].set(0)
	}, lagging(disks))
}

// lagging gives each member a disk that can be made slow.
func lagging(disks []*laggingDisk) grouptest.Option {
	return grouptest.Edit(func(i int, _ *conclave.Config, s *cluster.Seams) {
		disks[i] = &laggingDisk{FS: s.FS}
		s.FS = disks[i]
	})
}

// laggingDisk delays each sync.
type laggingDisk struct {
	vfs.FS
	mu    sync.Mutex
	delay time.Duration // guarded by mu
	hung  chan struct{} // guarded by mu; nil unless it hangs, closed when it goes on
}

// hang lets no sync return before release is called.
func (d *laggingDisk) hang() (release func()) {
	hung := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hung = hung
	return sync.OnceFunc(func() { close(hung) })
}

func (d *laggingDisk) set(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay = delay
}

func (d *laggingDisk) wait() {
	d.mu.Lock()
	delay, hung := d.delay, d.hung
	d.mu.Unlock()
	if delay > 0 {
		pass(delay)
	}
	if hung != nil {
		<-hung
	}
}

func (d *laggingDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return laggingFile{f, d}, err
}

func (d *laggingDisk) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldname, newname, c)
	return laggingFile{f, d}, err
}

func (d *laggingDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return laggingFile{f, d}, err
}

type laggingFile struct {
	vfs.File
	disk *laggingDisk
}

func (f laggingFile) Sync() error {
	f.disk.wait()
	return f.File.Sync()
}

func (f laggingFile) SyncData() error {
	f.disk.wait()
	return f.File.SyncData()
}

func (f laggingFile) SyncTo(length int64) (bool, error) {
	f.disk.wait()
	return f.File.SyncTo(length)
}
