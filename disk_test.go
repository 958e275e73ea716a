package conclave

import (
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// mainsFS is a disk in memory whose power can be cut. From the cut on nothing
// reaches it any more: operations wait, as the process that called them is
// about to be gone.
type mainsFS struct {
	vfs.FS
	disk *vfs.MemFS
	gate *sync.RWMutex // held for reading by each change of the disk, for writing without power
}

func newMainsFS(disk *vfs.MemFS) *mainsFS {
	return &mainsFS{FS: disk, disk: disk, gate: new(sync.RWMutex)}
}

// cut takes the power away and returns the disk that the next start will find.
func (m *mainsFS) cut() *mainsFS {
	m.gate.Lock()
	return newMainsFS(m.disk.CrashClone(vfs.CrashCloneCfg{}))
}

// bury lets the operations that wait since the cut end; nobody sees the disk
// that they go to.
func (m *mainsFS) bury() { m.gate.Unlock() }

func (m *mainsFS) change(f func() error) error {
	m.gate.RLock()
	defer m.gate.RUnlock()
	return f()
}

func (m *mainsFS) file(open func() (vfs.File, error)) (file vfs.File, err error) {
	m.gate.RLock()
	defer m.gate.RUnlock()
	if file, err = open(); err == nil {
		file = mainsFile{file, m}
	}
	return file, err
}

func (m *mainsFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return m.file(func() (vfs.File, error) { return m.FS.Create(name, c) })
}

func (m *mainsFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return m.file(func() (vfs.File, error) { return m.FS.OpenReadWrite(name, c, o...) })
}

func (m *mainsFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return m.file(func() (vfs.File, error) { return m.FS.ReuseForWrite(from, to, c) })
}

func (m *mainsFS) OpenDir(name string) (vfs.File, error) {
	return m.file(func() (vfs.File, error) { return m.FS.OpenDir(name) })
}

func (m *mainsFS) Link(from, to string) error {
	return m.change(func() error { return m.FS.Link(from, to) })
}

func (m *mainsFS) Rename(from, to string) error {
	return m.change(func() error { return m.FS.Rename(from, to) })
}

func (m *mainsFS) Remove(name string) error {
	return m.change(func() error { return m.FS.Remove(name) })
}

func (m *mainsFS) RemoveAll(name string) error {
	return m.change(func() error { return m.FS.RemoveAll(name) })
}

func (m *mainsFS) MkdirAll(name string, perm os.FileMode) error {
	return m.change(func() error { return m.FS.MkdirAll(name, perm) })
}

func (m *mainsFS) Unwrap() vfs.FS { return m.FS }

type mainsFile struct {
	vfs.File
	fs *mainsFS
}

func (f mainsFile) Write(p []byte) (n int, err error) {
	err = f.fs.change(func() error { n, err = f.File.Write(p); return err })
	return n, err
}

func (f mainsFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.fs.change(func() error { n, err = f.File.WriteAt(p, at); return err })
	return n, err
}

func (f mainsFile) Sync() error     { return f.fs.change(f.File.Sync) }
func (f mainsFile) SyncData() error { return f.fs.change(f.File.SyncData) }

func (f mainsFile) SyncTo(length int64) (full bool, err error) {
	err = f.fs.change(func() error { full, err = f.File.SyncTo(length); return err })
	return full, err
}
