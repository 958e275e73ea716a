package fencing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/conclave-go/conclave"
)

// File is a guard for files and other resources of one machine, or of a shared file system. It keeps the
// largest fence of each lock in a directory of its own, so that it refuses earlier holders also after
// a restart or a power loss. It may be used concurrently, and by several processes.
//
// The directory is created in its parent if it does not exist, for this user alone. It has three small files for
// each lock, which are never removed. Remove them only together with what the lock protects: they
// are what refuses the lock's earlier holders. On a file system that is shared by machines, its file
// locks (flock; on Windows LockFileEx) have to exclude the processes of all machines.
type File struct {
	Dir string
}

// Do calls f while no smaller fence for the lock is accepted: what f writes is not mixed with the
// writes of another holder, and comes before those of each later one. The fence is that of
// [FenceFromContext]; it is on the disk before f is called. Calls for one lock, of all processes, wait
// for each other until ctx is done, and from the moment in which a larger fence waits, smaller ones are refused. A process that is paused within f lets later holders wait; one
// that ends does not.
//
// It returns an error that wraps a *conclave.StaleFenceError, without a call of f, if a larger
// fence has been accepted; ErrMissing if ctx carries no fence for the lock; conclave.ErrInvalid for an
// invalid name; conclave.ErrCorrupt if the directory has something else than what File wrote; ctx's
// error, and those of the file system. An error of f is returned as it is.
func (g File) Do(ctx context.Context, lock string, f func() error) error {
	fence, err := FenceFromContext(ctx, lock)
	if err == nil {
		err = Token{lock, fence}.validate()
	}
	if err != nil {
		return fault(lock, err)
	}
	release, err := g.accept(ctx, Token{lock, fence})
	if err != nil {
		return fault(lock, err)
	}
	defer release()
	return f()
}

// Check accepts f if no larger fence for the lock has been accepted, as [conclave.Guard.Check] does, and
// keeps it on the disk. A newer holder may come between Check and the write that it is for: use Do where
// the write is in this process. It does not wait for calls of Do, and has the errors of Do.
func (g File) Check(lock string, f conclave.Fence) error {
	t := Token{lock, f}
	if err := t.validate(); err != nil {
		return fault(lock, err)
	}
	if err := g.keep(context.Background(), t); err != nil {
		return fault(lock, err)
	}
	return nil
}

// accept returns when the fence is kept, and no other call for the lock runs its function.
func (g File) accept(ctx context.Context, t Token) (release func(), err error) {
	// The fence is kept before the wait for an earlier holder, whose next call is refused then: one that writes again and
	// again would keep this one out otherwise.
	if err := g.keep(ctx, t); err != nil {
		return nil, err
	}
	if release, err = lockFile(ctx, g.path(t.Lock)+".use"); err != nil {
		return nil, err
	}
	if err := g.raise(ctx, t); err != nil { // a later holder may have come while this one waited; else the fence is on the disk
		release()
		return nil, err
	}
	return release, nil
}

// keep compares the fence with the largest. It is on the disk when keep returns nil.
func (g File) keep(ctx context.Context, t Token) error {
	if err := os.Mkdir(g.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := g.raise(ctx, t); err != nil {
		return err
	}
	return g.sync() // also of an equal fence: the call that wrote it may have ended before
}

// raise compares the fence with the largest, and replaces a smaller one.
func (g File) raise(ctx context.Context, t Token) error {
	path := g.path(t.Lock)
	release, err := lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer release()
	largest, err := readFence(path, t.Lock)
	switch {
	case err != nil:
		return err
	case t.Fence < largest:
		return &conclave.StaleFenceError{Presented: t.Fence, Largest: largest}
	case t.Fence > largest:
		return write(path, t)
	}
	return nil
}

// sync makes the names of the files durable, and that of the directory, which another process may have made. A process that
// may not read the parent cannot have made the directory there.
func (g File) sync() error {
	if err := syncDir(g.Dir); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(filepath.Clean(g.Dir))); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// path has no part of the name, which may be longer than a file's, or differ from another one by case only.
func (g File) path(lock string) string {
	sum := sha256.Sum256([]byte(lock))
	return filepath.Join(g.Dir, hex.EncodeToString(sum[:]))
}

// Between two attempts to lock a file that is locked.
const minLockPause, maxLockPause = time.Millisecond, 20 * time.Millisecond

// lockFile opens the file and locks it. It asks again and again: a system call that waits cannot be ended with ctx,
// so callers that give up would leave a thread each for as long as the holder is paused.
func lockFile(ctx context.Context, path string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for pause := minLockPause; ; pause = min(2*pause, maxLockPause) {
		locked, err := tryLock(file)
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if locked {
			return func() { file.Close() }, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		}
	}
}

// A file has the format's version, the fence and the lock's name, for people, in one line each.
const fileVersion = "conclave fence 1"

// readFence returns the largest fence that was kept; 0: none was.
func readFence(path, lock string) (conclave.Fence, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) != 4 || lines[0] != fileVersion || lines[2] != strconv.Quote(lock) || lines[3] != "" {
		return 0, fmt.Errorf("%w: %s is not what this version of package fencing wrote", conclave.ErrCorrupt, path)
	}
	fence, err := conclave.ParseFence(lines[1])
	if err != nil {
		return 0, fmt.Errorf("%w: %s: %w", conclave.ErrCorrupt, path, err)
	}
	return fence, nil
}

// write replaces the file at once, so that a crash leaves the previous fence or this one. The lock is held.
func write(path string, t Token) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%v\n%s\n", fileVersion, t.Fence, strconv.Quote(t.Lock))
	file, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b.Bytes())
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}
