package grouptest

import (
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// PoweredDisk is a disk in memory that can lose power. Operations block from then on, as
// their process is about to be killed.
type PoweredDisk struct {
	vfs.FS
	memory *vfs.MemFS
	power  *sync.RWMutex // held for reading by each change of the disk, for writing without power
}

// NewPoweredDisk returns an empty disk.
func NewPoweredDisk() *PoweredDisk { return newPoweredDisk(vfs.NewCrashableMem()) }

func newPoweredDisk(memory *vfs.MemFS) *PoweredDisk {
	return &PoweredDisk{FS: memory, memory: memory, power: new(sync.RWMutex)}
}

// PoweredBytes are always free on a PoweredDisk.
const PoweredBytes = 1 << 40

// GetDiskUsage implements vfs.FS.
func (d *PoweredDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: PoweredBytes, TotalBytes: PoweredBytes}, nil
}

// Hang blocks all operations until release is called.
func (d *PoweredDisk) Hang() (release func()) {
	d.power.Lock()
	return sync.OnceFunc(d.power.Unlock)
}

// cut is the power loss. It returns the disk for the next start; release lets the
// blocked operations end, on the old disk.
func (d *PoweredDisk) cut() (next *PoweredDisk, release func()) {
	release = d.Hang()
	return newPoweredDisk(d.memory.CrashClone(vfs.CrashCloneCfg{})), release
}

// Crash is a simultaneous power loss of members' machines. Unsynced data is lost, and
// the other members do not even see connections end. The crashed members stay isolated
// until Restart. The group needs disks in memory and MemoryNetwork.
func (g *Group) Crash(members ...int) {
	g.T.Helper()
	var release []func()
	for _, i := range members {
		g.Net.Isolate(i)
		switch disk := g.Seams[i].FS.(type) {
		case *PoweredDisk:
			next, f := disk.cut()
			g.Seams[i].FS, release = next, append(release, f)
		case interface {
			CrashClone(vfs.CrashCloneCfg) *vfs.MemFS
		}:
			g.Seams[i].FS = disk.CrashClone(vfs.CrashCloneCfg{})
		default:
			g.T.Fatalf("member %d: %T cannot lose power", i, disk)
		}
	}
	var closing sync.WaitGroup
	closing.Go(func() { g.Kill(members...) })
	if len(release) > 0 {
		// The processes must not observe the writes that are released here.
		for _, i := range members {
			Must(g.T, g.Net.AwaitClosed(g.T.Context(), g.Configs[i].Bind))
		}
	}
	for _, f := range release {
		f()
	}
	closing.Wait()
	for _, i := range members {
		g.Net.Discard(i)
	}
}

// Restart starts members after Crash, at the same time.
func (g *Group) Restart(members ...int) {
	g.T.Helper()
	for _, i := range members {
		g.Net.Rejoin(i)
	}
	g.Start(members...)
}

func (d *PoweredDisk) change(f func() error) error {
	d.power.RLock()
	defer d.power.RUnlock()
	return f()
}

func (d *PoweredDisk) file(open func() (vfs.File, error)) (file vfs.File, err error) {
	d.power.RLock()
	defer d.power.RUnlock()
	if file, err = open(); err == nil {
		file = poweredFile{file, d}
	}
	return file, err
}

func (d *PoweredDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.Create(name, c) })
}

func (d *PoweredDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.OpenReadWrite(name, c, o...) })
}

func (d *PoweredDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.ReuseForWrite(from, to, c) })
}

func (d *PoweredDisk) OpenDir(name string) (vfs.File, error) {
	return d.file(func() (vfs.File, error) { return d.FS.OpenDir(name) })
}

func (d *PoweredDisk) Link(from, to string) error {
	return d.change(func() error { return d.FS.Link(from, to) })
}

func (d *PoweredDisk) Rename(from, to string) error {
	return d.change(func() error { return d.FS.Rename(from, to) })
}

func (d *PoweredDisk) Remove(name string) error {
	return d.change(func() error { return d.FS.Remove(name) })
}

func (d *PoweredDisk) RemoveAll(name string) error {
	return d.change(func() error { return d.FS.RemoveAll(name) })
}

func (d *PoweredDisk) MkdirAll(name string, perm os.FileMode) error {
	return d.change(func() error { return d.FS.MkdirAll(name, perm) })
}

func (d *PoweredDisk) Unwrap() vfs.FS { return d.FS }

type poweredFile struct {
	vfs.File
	fs *PoweredDisk
}

func (f poweredFile) Write(p []byte) (n int, err error) {
	err = f.fs.change(func() error { n, err = f.File.Write(p); return err })
	return n, err
}

func (f poweredFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.fs.change(func() error { n, err = f.File.WriteAt(p, at); return err })
	return n, err
}

func (f poweredFile) Sync() error     { return f.fs.change(f.File.Sync) }
func (f poweredFile) SyncData() error { return f.fs.change(f.File.SyncData) }

func (f poweredFile) SyncTo(length int64) (full bool, err error) {
	err = f.fs.change(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}
