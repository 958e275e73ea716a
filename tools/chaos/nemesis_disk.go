//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const smallDisk = 48 << 20 // beyond what the directory has at first

// fullDisk moves the directories of members to small file systems, one after the
// other, and fills them. A full disk stops the node, which starts again later.
func fullDisk(ctx context.Context, f *faults) error {
	return rounds(ctx, func() error {
		m := f.victim()
		f.trace("full disk at %s", m.name)
		f.close(m)
		if err := toSmallDisk(m.dir); err != nil {
			return fmt.Errorf("small file system for %s: %w", m.name, err)
		}
		err := f.fillAndRecover(ctx, m)
		// The directory moves back in any case.
		if m.running() {
			f.close(m)
		}
		if err := errors.Join(err, fromSmallDisk(m.dir)); err != nil {
			return err
		}
		if err := f.restart(ctx, m); err != nil {
			return err
		}
		f.between(ctx, time.Second, 2*time.Second)
		return nil
	})
}

// fillAndRecover fills the disk under a running member, has a member start on a disk
// that has little left, and then removes the filler.
func (f *faults) fillAndRecover(ctx context.Context, m *member) error {
	if err := f.restart(ctx, m); err != nil {
		return ignoreEnd(ctx, err)
	}
	f.between(ctx, 500*time.Millisecond, 2*time.Second)
	filler := filepath.Join(m.dir, "filler")
	if err := fill(filler); err != nil {
		return err
	}
	f.awaitFull(m, 5*time.Second)
	if m.running() { // its files had room: the next start needs new ones
		f.kill(m)
	}
	if err := shrink(filler, f.random.Int64N(2<<20)); err != nil {
		return err
	}
	f.trace("start %s on a disk that is almost full", m.name)
	if err := f.start(m); err != nil {
		return err
	}
	f.awaitFull(m, 8*time.Second)
	if err := os.Remove(filler); err != nil {
		return err
	}
	if err := f.restart(ctx, m); err != nil {
		return ignoreEnd(ctx, err)
	}
	f.between(ctx, time.Second, 2*time.Second)
	return nil
}

// awaitFull waits for a member to stop for want of space, which it need not.
func (f *faults) awaitFull(m *member, limit time.Duration) {
	select {
	case <-m.process.done:
		why := m.process.stopped()
		f.trace("%s has stopped: %s", m.name, why)
		m.process.expectEnd()
		if !strings.Contains(why, "no space left") {
			f.spoiled = append(f.spoiled, fmt.Sprintf("%s: the disk was full, and the process ended with %v: %q", m.name, m.process.cmd.ProcessState, why))
		}
	case <-time.After(limit):
		f.trace("%s runs on with a full disk", m.name)
	}
}

func shrink(path string, by int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, max(0, info.Size()-by))
}

// fill writes a file until no space is left.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for size := 1 << 16; size > 0; size /= 2 { // to the last byte
		for err == nil {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			return err
		}
		err = nil
	}
	return nil
}

// toSmallDisk moves a directory to a small file system, mounted in its place.
func toSmallDisk(dir string) error {
	used, err := sizeOf(dir)
	if err != nil {
		return err
	}
	if err := os.Rename(dir, aside(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("chaos", dir, "tmpfs", 0, fmt.Sprintf("size=%d", used+smallDisk)); err != nil {
		return err
	}
	if err := os.CopyFS(dir, os.DirFS(aside(dir))); err != nil {
		return err
	}
	return os.RemoveAll(aside(dir))
}

// fromSmallDisk moves the directory back.
func fromSmallDisk(dir string) error {
	if err := os.CopyFS(aside(dir), os.DirFS(dir)); err != nil {
		return err
	}
	if err := unix.Unmount(dir, 0); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil {
		return err
	}
	return os.Rename(aside(dir), dir)
}

// aside is where a directory is kept meanwhile.
func aside(dir string) string { return dir + ".aside" }

func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// rolledBackDirectory replaces the directory of a member by a copy from a few seconds
// before. Its start must be refused; then the directory is wiped, or, where the build
// cannot add members, the latest one is put back.
func rolledBackDirectory(ctx context.Context, f *faults) error {
	joins := f.canJoin(ctx) == nil
	return rounds(ctx, func() error {
		m := f.victim()
		older := m.dir + ".older"
		f.freeze(m)
		err := os.CopyFS(older, os.DirFS(m.dir))
		f.thaw(m)
		if err != nil {
			return err
		}
		f.between(ctx, 2*time.Second, 5*time.Second)
		old := m.process.last().ID
		f.kill(m)
		if err := errors.Join(os.Rename(m.dir, aside(m.dir)), os.Rename(older, m.dir)); err != nil {
			return err
		}
		f.trace("start %s with an older directory", m.name)
		f.expectRefusal(ctx, m)
		if joins {
			if err := os.RemoveAll(aside(m.dir)); err != nil {
				return err
			}
			return f.replace(ctx, m, old)
		}
		if err := errors.Join(os.RemoveAll(m.dir), os.Rename(aside(m.dir), m.dir)); err != nil {
			return err
		}
		err = f.restart(ctx, m)
		f.between(ctx, time.Second, 2*time.Second)
		return err
	})
}

// expectRefusal starts a member that must not become one. The end of the nemesis does
// not shorten it: a member with an older directory must not stay in the group.
func (f *faults) expectRefusal(ctx context.Context, m *member) {
	if err := f.start(m); err != nil {
		f.spoiled = append(f.spoiled, err.Error())
		return
	}
	ctx = context.WithoutCancel(ctx)
	err := f.awaitOpen(ctx, m, openLimit)
	select {
	case <-m.process.opened:
		f.spoiled = append(f.spoiled, m.name+": a rolled-back directory was opened")
	case <-m.process.done:
		f.trace("refused: %s", m.process.stopped())
		if !strings.Contains(m.process.stopped(), "corrupt") {
			f.spoiled = append(f.spoiled, fmt.Sprintf("%s: a rolled-back directory was refused with %q, want ErrCorrupt", m.name, m.process.stopped()))
		}
	default:
		f.spoiled = append(f.spoiled, fmt.Sprintf("%s: a rolled-back directory was neither opened nor refused: %v", m.name, err))
	}
	m.process.kill()
}
