// Package memdisk is a disk in memory, for tests that take the state after a power loss
// while other goroutines use the disk.
package memdisk

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is a crashable vfs.MemFS whose CrashClone may run at any time. That of MemFS (Pebble
// v2.1.7) locks it for writing, and some operations lock it for reading twice: a clone that
// comes in between blocks both for ever. Disk keeps clones out of these operations.
type Disk struct {
	*vfs.MemFS
	cloning sync.RWMutex // held for writing by CrashClone, for reading by operations that lock MemFS twice
}

// New returns an empty disk.
func New() *Disk { return On(vfs.NewCrashableMem()) }

// On returns a disk with the content of memory, which must be used through it only.
func On(memory *vfs.MemFS) *Disk { return &Disk{MemFS: memory} }

// CrashClone returns the disk after a power loss at this moment.
func (d *Disk) CrashClone(cfg vfs.CrashCloneCfg) *vfs.MemFS {
	d.cloning.Lock()
	defer d.cloning.Unlock()
	return d.MemFS.CrashClone(cfg)
}

// Lock implements vfs.FS.
func (d *Disk) Lock(name string) (io.Closer, error) {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.MemFS.Lock(name)
}

// Link implements vfs.FS.
func (d *Disk) Link(oldname, newname string) error {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.MemFS.Link(oldname, newname)
}

// ReuseForWrite implements vfs.FS.
func (d *Disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	d.cloning.RLock()
	defer d.cloning.RUnlock()
	return d.MemFS.ReuseForWrite(oldname, newname, category)
}
