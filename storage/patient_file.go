package storage

import "github.com/cockroachdb/pebble/v2/vfs"

// patientFile is a file whose calls wait out shortages. Those that succeed at once, as every
// write and sync of the log does, allocate nothing.
type patientFile struct {
	vfs.File
	name     string
	patience *patience
}

// again repeats a call that has failed; see patience.again.
func (f *patientFile) again(op string, unchanged bool, err error, call func() error) error {
	if err == nil || !isShortage(err, unchanged) {
		return err
	}
	return f.patience.again(op, f.name, unchanged, err, call)
}

func (f *patientFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if err == nil {
		return n, nil
	}
	return f.rest("write", p, n, err, func(rest []byte, _ int) (int, error) { return f.File.Write(rest) })
}

func (f *patientFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	if err == nil {
		return n, nil
	}
	return f.rest("write", p, n, err, func(rest []byte, done int) (int, error) { return f.File.WriteAt(rest, off+int64(done)) })
}

// rest writes what a write that failed has left.
func (f *patientFile) rest(op string, p []byte, done int, err error, write func(rest []byte, done int) (int, error)) (int, error) {
	err = f.again(op, false, err, func() error {
		n, err := write(p[done:], done)
		done += n
		return err
	})
	return done, err
}

// repeated repeats a call with a result. Where it is a function of its own, the calls that
// succeed allocate nothing.
func repeated[T any](f *patientFile, op string, unchanged bool, result T, err error, call func() (T, error)) (T, error) {
	err = f.again(op, unchanged, err, func() (err error) {
		result, err = call()
		return err
	})
	return result, err
}

func (f *patientFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err == nil || n > 0 {
		return n, err
	}
	return repeated(f, "read", true, n, err, func() (int, error) { return f.File.Read(p) })
}

func (f *patientFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if err == nil {
		return n, nil
	}
	return repeated(f, "read", true, n, err, func() (int, error) { return f.File.ReadAt(p, off) })
}

func (f *patientFile) Preallocate(off, length int64) error {
	err := preallocate(f.File, f.name, off, length)
	if err == nil {
		return nil
	}
	return f.again("preallocate", false, err, func() error { return preallocate(f.File, f.name, off, length) })
}

func (f *patientFile) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err == nil {
		return info, nil
	}
	return repeated(f, "stat", true, info, err, f.File.Stat)
}

func (f *patientFile) Sync() error {
	err := f.File.Sync()
	if err == nil {
		return nil
	}
	return f.again("sync", false, err, f.File.Sync)
}

func (f *patientFile) SyncData() error {
	err := f.File.SyncData()
	if err == nil {
		return nil
	}
	return f.again("sync", false, err, f.File.SyncData)
}

func (f *patientFile) SyncTo(length int64) (bool, error) {
	full, err := f.File.SyncTo(length)
	if err == nil {
		return full, nil
	}
	return repeated(f, "sync", false, full, err, func() (bool, error) { return f.File.SyncTo(length) })
}

// Close closes the file, whatever an interrupted call returns: it must not be repeated, as the
// descriptor may be another file's by then. The reserve takes what this frees.
func (f *patientFile) Close() error {
	err := f.File.Close()
	f.patience.refill()
	if isShortage(err, false) {
		return nil
	}
	return err
}
