package conclavecertmagic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/conclave-go/conclave"
)

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// Option configures a Storage.
type Option interface{ apply(*Storage) }

type option func(*Storage)

func (f option) apply(s *Storage) { f(s) }

// Prefix sets what precedes the keys and the names of locks in the group. All processes that
// share certificates need the same one. Default: "certmagic/".
func Prefix(p string) Option { return option(func(s *Storage) { s.prefix = p }) }

// LockWith takes the locks under a session, for example of a longer TTL or with a lock-delay.
// Default: the node's own session.
func LockWith(locks conclave.Locks) Option { return option(func(s *Storage) { s.locks = locks }) }

// Storage implements [certmagic.Storage], [certmagic.TryLocker] and [certmagic.LockLeaseRenewer].
// It behaves as [certmagic.FileStorage], except that a file may exist whose name is also that of a
// directory. Errors wrap those of [conclave.KV] and [conclave.FencedLock], and [fs.ErrNotExist]. All
// methods are safe for concurrent use. A Storage has nothing to close.
type Storage struct {
	kv     *conclave.KV
	locks  conclave.Locks
	prefix string

	mu    sync.Mutex
	holds map[string][]*conclave.FencedLock // guarded by mu; by the lock's name; all but one are lost
}

// New returns a Storage in the group.
func New(group conclave.Access, opts ...Option) *Storage {
	s := &Storage{kv: group.KV(), locks: group, prefix: "certmagic/", holds: make(map[string][]*conclave.FencedLock)}
	for _, opt := range opts {
		opt.apply(s)
	}
	return s
}

// String is for CertMagic's log.
func (s *Storage) String() string { return "conclave:" + s.prefix }

func fault(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("conclavecertmagic: %s %q: %w", op, name, err)
}

// clean returns a key without needless slashes and dots, as a path in a file system; "" is the
// root.
func clean(key string) string { return path.Clean("/" + key)[1:] }

// file is the key of a file in the group.
func (s *Storage) file(key string) string { return s.prefix + clean(key) }

// folder is what the keys of a directory's files in the group begin with.
func (s *Storage) folder(key string) string {
	if key = clean(key); key != "" {
		key += "/"
	}
	return s.prefix + key
}

// maxKey is the longest key of the group. Nothing exists under a longer one; that is no error of a
// method that only looks for it.
const maxKey = 512

// Store implements [certmagic.Storage]. It blocks until the value, up to 512 KiB, is on the disks
// of a majority. The time of the change is by the clock of this process.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	if clean(key) == "" {
		return fault("store", key, fs.ErrInvalid)
	}
	_, err := s.kv.Put(ctx, s.file(key), value, conclave.WithFlags(uint64(time.Now().UnixNano())))
	return fault("store", key, err)
}

// Load implements [certmagic.Storage]. [fs.ErrNotExist]: there is no such file.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	e, err := s.get(ctx, key)
	if err != nil {
		return nil, fault("load", key, err)
	}
	if e.Value == nil {
		e.Value = []byte{} // an empty file
	}
	return e.Value, nil
}

func (s *Storage) get(ctx context.Context, key string) (conclave.Entry, error) {
	if clean(key) == "" || len(s.file(key)) > maxKey {
		return conclave.Entry{}, fs.ErrNotExist // the root is a directory
	}
	e, err := s.kv.Get(ctx, s.file(key))
	if errors.Is(err, conclave.ErrKeyNotFound) {
		err = fs.ErrNotExist
	}
	return e, err
}

// Delete implements [certmagic.Storage]. The file, and a directory of that name with all in it, are
// deleted at once or not at all. [conclave.ErrTooLarge]: it is a directory of more than 16,384
// files. The root is not deleted: [fs.ErrInvalid].
func (s *Storage) Delete(ctx context.Context, key string) error {
	if clean(key) == "" {
		return fault("delete", key, fs.ErrInvalid)
	}
	var ops []conclave.Op
	if file := s.file(key); len(file) <= maxKey {
		ops = append(ops, conclave.OpDelete(file))
	}
	if folder := s.folder(key); len(folder) <= maxKey {
		ops = append(ops, conclave.OpDeletePrefix(folder))
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := s.kv.Txn(ctx, ops...)
	return fault("delete", key, err)
}

// Exists implements [certmagic.Storage]. It returns false also if the group cannot be asked.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	if _, err := s.get(ctx, key); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err == nil
	}
	children, err := s.keys(ctx, key, "/")
	return err == nil && len(children) > 0
}

// keys returns the keys in a directory. No key is in one whose name with a slash is longer than a
// key may be.
func (s *Storage) keys(ctx context.Context, dir, separator string) ([]string, error) {
	if folder := s.folder(dir); len(folder) <= maxKey {
		return s.kv.Keys(ctx, folder, separator)
	}
	return nil, nil
}

// List implements [certmagic.Storage]. With recursive it lists also the directories below, as
// [certmagic.FileStorage] does. [fs.ErrNotExist]: there is neither a directory nor a file of that
// name.
func (s *Storage) List(ctx context.Context, dir string, recursive bool) ([]string, error) {
	separator := "/"
	if recursive {
		separator = ""
	}
	keys, err := s.keys(ctx, dir, separator)
	if err == nil && len(keys) == 0 {
		_, err = s.get(ctx, dir) // a file has no children
	}
	if err != nil {
		return nil, fault("list", dir, err)
	}
	return s.tree(dir, keys), nil
}

// tree returns each of the group's keys as a key of the storage, behind the directories between dir and it.
func (s *Storage) tree(dir string, keys []string) []string {
	var all []string
	known := make(map[string]bool)
	add := func(key string) {
		if !known[key] {
			known[key] = true
			all = append(all, key)
		}
	}
	for _, key := range keys {
		below := strings.TrimSuffix(key[len(s.folder(dir)):], "/")
		for i := range below {
			if below[i] == '/' {
				add(path.Join(clean(dir), below[:i]))
			}
		}
		add(path.Join(clean(dir), below))
	}
	slices.Sort(all)
	return all
}

// Stat implements [certmagic.Storage]. A directory is as recent as the latest of its files, and
// Stat reads all of them. [fs.ErrNotExist]: there is neither a file nor a directory of that name.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	e, err := s.get(ctx, key)
	if err == nil {
		return certmagic.KeyInfo{Key: key, Modified: modified(e), Size: int64(len(e.Value)), IsTerminal: true}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return certmagic.KeyInfo{}, fault("stat", key, err)
	}
	var files []conclave.Entry
	var failed error
	if folder := s.folder(key); len(folder) <= maxKey {
		files, failed = s.kv.List(ctx, folder)
	}
	if failed != nil || len(files) == 0 {
		return certmagic.KeyInfo{}, fault("stat", key, errors.Join(failed, err))
	}
	info := certmagic.KeyInfo{Key: key}
	for _, f := range files {
		if m := modified(f); m.After(info.Modified) {
			info.Modified = m
		}
	}
	return info, nil
}

// modified is zero for a key that was not written by a Storage.
func modified(e conclave.Entry) time.Time {
	if e.Flags == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(e.Flags))
}
