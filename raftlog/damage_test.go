package raftlog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// The end of the write-ahead log is cut off at one byte after another. No database
// can tell that from a log that was never longer; the watermark can.
func TestALostTailIsNoticed(t *testing.T) {
	disk := acknowledged(t)
	wal, bytes := lastLog(t, disk)
	whole, _, err := reopenCopy(t, disk, wal, bytes)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for cut := 0; cut < len(bytes); cut += 3 {
		got, _, err := reopenCopy(t, disk, wal, bytes[:cut])
		switch {
		case err != nil && !errors.Is(err, storage.ErrCorrupt):
			t.Fatalf("cut at %d: %v", cut, err)
		case err != nil:
			refused++
		case got != whole:
			t.Fatalf("cut at %d of %d, opened with\n%swant\n%s", cut, len(bytes), got, whole)
		}
	}
	if refused < len(bytes)/6 {
		t.Errorf("%d cuts of a log of %d bytes refused: is it empty?", refused, len(bytes))
	}
}

// lastLog finds the write-ahead log with the most in it.
func lastLog(t *testing.T, disk *vfs.MemFS) (path string, content []byte) {
	t.Helper()
	for name, c := range files(t, disk) {
		if strings.HasSuffix(name, ".log") && len(c) > len(content) {
			path, content = name, c
		}
	}
	return path, content
}

// files reads all of a directory.
func files(t *testing.T, disk vfs.FS) map[string][]byte {
	t.Helper()
	names, err := disk.List("/conclave")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		file, err := disk.Open("/conclave/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = io.ReadAll(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	return all
}

// reopenCopy opens a copy of the directory in which one file has other content,
// and tells what is in it.
func reopenCopy(t *testing.T, disk vfs.FS, changed string, content []byte) (string, *Log, error) {
	t.Helper()
	damaged := vfsMem()
	if err := damaged.MkdirAll("/conclave", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range files(t, disk) {
		if name == changed {
			c = content
		}
		file, err := damaged.Create("/conclave/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(append([]byte(nil), c...)); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	store, log, err := reopen(damaged)
	if err != nil {
		return "", nil, err
	}
	defer store.Close()
	m, err := found(log)
	if err != nil {
		return "", log, err
	}
	if err := store.Err(); err != nil {
		return "", log, err
	}
	return m.String(), log, nil
}

// Every file is damaged at many places, one at a time: bytes flipped, zeroed,
// cut off. Either it is noticed, at Open or in reading the state, or what is
// there is as it was; or it is as it was some steps before, if those were not
// acknowledged as durable.
func TestDamageIsNoticedOrHarmless(t *testing.T) {
	disk, steps := workedOn(t)
	harmless := func(got string) bool {
		last := len(steps) - 1
		for last > 0 && !steps[last].synced(steps[last-1].after) {
			last--
		}
		return slices.ContainsFunc(steps[last:], func(s step) bool { return s.after.String() == got })
	}
	noticed := map[string][2]int{}
	for name, content := range files(t, disk) {
		for _, damaged := range damages(content) {
			got, _, err := reopenCopy(t, disk, name, damaged.content)
			count := noticed[name]
			count[1]++
			switch {
			case err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNewer):
				t.Errorf("%s, %s: %v", name, damaged.how, err)
			case err != nil:
				count[0]++
			case !harmless(got):
				t.Errorf("%s, %s: opened with\n%swant\n%s", name, damaged.how, got, steps[len(steps)-1].after)
			}
			noticed[name] = count
		}
	}
	t.Logf("noticed, of all: %v", noticed)
}

// workedOn makes a directory with tables as well as a write-ahead log in it.
func workedOn(t *testing.T) (*vfs.MemFS, []step) {
	t.Helper()
	disk := vfsMem()
	store, log := openLog(t, storage.Options{FS: disk})
	steps := script(1, 60)
	for i, s := range steps {
		if i == 40 {
			if err := store.Do(func(db *pebble.DB) error { return db.Flush() }); err != nil {
				t.Fatal(err)
			}
		}
		err := error(nil)
		if i == 0 {
			err = log.Bootstrap(s.ops[0].(Install).ConfState)
		} else {
			err = play(log, s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return disk, steps
}

type damage struct {
	how     string
	content []byte
}

func damages(content []byte) []damage {
	var all []damage
	const places = 16
	for i := range places {
		at := len(content) * i / places
		if at >= len(content) {
			break
		}
		flipped := slices.Clone(content)
		flipped[at] ^= 0x10
		zeroed := slices.Clone(content)
		clear(zeroed[at:min(at+64, len(zeroed))])
		all = append(all,
			damage{fmt.Sprintf("bit flipped at %d of %d", at, len(content)), flipped},
			damage{fmt.Sprintf("zeroed from %d of %d", at, len(content)), zeroed},
			damage{fmt.Sprintf("cut off at %d of %d", at, len(content)), content[:at]})
	}
	return all
}
