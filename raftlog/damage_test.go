package raftlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// The tail of the WAL is truncated at one byte after another. No database can
// distinguish that from a WAL that was never longer; the watermark can.
func TestDamage_LostWALTailDetected(t *testing.T) {
	t.Parallel()
	files := readFiles(t, acknowledgedLog(t))
	wal := longestWAL(files)
	whole, err := readDamaged(t, files, wal, files[wal])
	if err != nil {
		t.Fatal(err)
	}
	refused, length := 0, len(files[wal])
	for end := 0; end < length; end += 3 {
		got, err := readDamaged(t, files, wal, files[wal][:end])
		switch {
		case err != nil && !errors.Is(err, storage.ErrCorrupt):
			t.Fatalf("truncated at %d: %v", end, err)
		case err != nil:
			refused++
		case got != whole:
			t.Fatalf("truncated at %d of %d: opened with\n%swant\n%s", end, length, got, whole)
		}
	}
	if refused < length/6 {
		t.Errorf("%d truncations of a WAL of %d bytes refused: is it empty?", refused, length)
	}
}

// Every file is damaged at many offsets, one at a time: bits flipped, bytes
// zeroed, the tail truncated. Open or reading the state detects the damage, or
// the log is unchanged but for steps that were not acknowledged as durable.
func TestDamage_AnyFileDetectedOrHarmless(t *testing.T) {
	t.Parallel()
	disk, steps := usedLog(t)
	harmless := func(got string) bool {
		durable := len(steps) - 1
		for durable > 0 && !steps[durable].synced(steps[durable-1].after) {
			durable--
		}
		return slices.ContainsFunc(steps[durable:], func(s step) bool { return s.after.String() == got })
	}
	files := readFiles(t, disk)
	for name, content := range files {
		detected, all := 0, damages(content)
		for _, d := range all {
			got, err := readDamaged(t, files, name, d.content)
			switch {
			case err != nil && !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrNewer):
				t.Errorf("%s, %s: %v", name, d.how, err)
			case err != nil:
				detected++
			case !harmless(got):
				t.Errorf("%s, %s: opened with\n%swant\n%s", name, d.how, got, steps[len(steps)-1].after)
			}
		}
		t.Logf("%s: %d of %d detected", name, detected, len(all))
	}
}

// usedLog plays a script, with a table flush in it, and closes the log.
func usedLog(t *testing.T) (*vfs.MemFS, []step) {
	t.Helper()
	disk := vfs.NewMem()
	store, log := openLog(t, storage.Options{FS: disk})
	steps := script(1, 60)
	for i, s := range steps {
		if i == 40 {
			if err := store.Do(func(db *pebble.DB) error { return db.Flush() }); err != nil {
				t.Fatal(err)
			}
		}
		if err := play(log, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return disk, steps
}

// acknowledgedLog writes a log with a few acknowledged entries and closes it.
func acknowledgedLog(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	store, log := openLog(t, storage.Options{FS: disk})
	bootstrap(t, log, 1, 2, 3)
	for i := uint64(2); i < 6; i++ {
		mustWrite(t, log, Append{Entries: entries(i, i, 1)})
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

func longestWAL(files map[string][]byte) (longest string) {
	for name, content := range files {
		if strings.HasSuffix(name, ".log") && len(content) > len(files[longest]) {
			longest = name
		}
	}
	return longest
}

// readDamaged opens a data directory with the given files, one of them replaced,
// and returns the content of its log.
func readDamaged(t *testing.T, files map[string][]byte, damaged string, content []byte) (string, error) {
	t.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll("/conclave", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, c := range files {
		if name == damaged {
			c = content
		}
		file, err := disk.Create("/conclave/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(slices.Clone(c)); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	store, log, err := openDisk(disk)
	if err != nil {
		return "", err
	}
	defer store.Close()
	m, err := readLog(log)
	if err != nil {
		return "", err
	}
	return m.String(), store.Err()
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
			damage{fmt.Sprintf("truncated at %d of %d", at, len(content)), content[:at]})
	}
	return all
}
