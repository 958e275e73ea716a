package crash

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/storage"
)

// content is a data directory, by file.
type content map[string][]byte

func contentOf(t *testing.T, disk vfs.FS) content {
	t.Helper()
	names, err := disk.List("data")
	if err != nil {
		t.Fatal(err)
	}
	c := content{}
	for _, name := range names {
		file, err := disk.Open("data/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if c[name], err = io.ReadAll(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	return c
}

func (c content) disk(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, bytes := range c {
		file, err := disk.Create("data/"+name, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = file.Write(slices.Clone(bytes))
		}
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	return disk
}

// with returns the directory with one file replaced, or removed if bytes is nil.
func (c content) with(name string, bytes []byte) content {
	d := maps.Clone(c)
	if d[name] = bytes; bytes == nil {
		delete(d, name)
	}
	return d
}

// contentAtTwoTimes returns one member's directory at two moments at which its process
// could have been killed, or its power lost, and the acknowledged state at the
// second.
func contentAtTwoTimes(t *testing.T, powerLoss bool) (earlier, later content, acknowledged string) {
	t.Helper()
	b := newRecorder(100)
	if powerLoss {
		b.kept = 0
	}
	states := runWorkload(t, b)
	moment := func(steps int) content { // the first, when nothing of the next step is on disk
		i := slices.IndexFunc(b.images, func(w image) bool { return w.acknowledged == int64(steps) })
		return contentOf(t, b.images[i].disk)
	}
	last := len(states) - 2 // before the session is closed
	return moment(last - 2), moment(last), states[last]
}

type damage struct {
	how   string
	bytes []byte // nil: removed
}

// damages lists what may happen to a file, each at many places.
func damages(bytes, before []byte) []damage {
	all := []damage{{"removed", nil}, {"emptied", []byte{}}, {"lengthened", append(slices.Clone(bytes), "foreign bytes"...)}}
	if before != nil && !slices.Equal(before, bytes) {
		all = append(all, damage{"rolled back", before})
	}
	const places = 16
	for i := range places {
		at := len(bytes) * i / places
		if at == len(bytes) || i > 0 && at == len(bytes)*(i-1)/places {
			continue // a short file has fewer places
		}
		flipped := slices.Clone(bytes)
		flipped[at] ^= 1 << (i % 8)
		all = append(all,
			damage{fmt.Sprintf("bit flipped at %d of %d", at, len(bytes)), flipped},
			damage{fmt.Sprintf("truncated at %d of %d", at, len(bytes)), bytes[:at:at]})
		for _, block := range []int{16, 512, 4096} {
			from := at / block * block
			if i > 0 && len(bytes)*(i-1)/places/block*block == from {
				continue // done
			}
			zeroed := slices.Clone(bytes)
			clear(zeroed[from:min(from+block, len(zeroed))])
			all = append(all, damage{fmt.Sprintf("zeroed from %d to %d of %d", from, from+block, len(bytes)), zeroed})
		}
	}
	return all
}

// Each file of a member's directory is damaged: bits flipped, blocks zeroed,
// truncated, emptied, removed, rolled back. The member refuses to start with an
// error that says so, at each attempt, or has all that it had acknowledged. It never
// starts with less. The exceptions are in TestDamage_Undetectable.
func TestDamage_EachFile(t *testing.T) {
	if testing.Short() {
		t.Skip("one start after another, which the race detector learns nothing from")
	}
	earlier, later, acknowledged := contentAtTwoTimes(t, false)
	for name, bytes := range later {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused, all := 0, 0
			for _, d := range damages(bytes, earlier[name]) {
				disk := later.with(name, d.bytes).disk(t)
				for attempt := range 2 {
					got, err := dumpOf(t, disk)
					if err == nil && got == acknowledged {
						break
					}
					switch {
					case err != nil && !errors.Is(err, conclave.ErrCorrupt) && !errors.Is(err, storage.ErrNewer) && !errors.Is(err, storage.ErrForeign):
						t.Errorf("%s, attempt %d: %v", d.how, attempt, err)
					case err == nil:
						t.Errorf("%s, attempt %d: started with\n%s\nwant\n%s", d.how, attempt, got, acknowledged)
					case attempt == 0:
						refused++
					}
				}
				all++
			}
			t.Logf("%d bytes: %d of %d refused", len(bytes), refused, all)
		})
	}
}

// dumpOf starts a member on a disk and describes its state.
func dumpOf(t *testing.T, disk vfs.FS) (string, error) {
	n, err := startOn(grouptest.Bounded(t), disk)
	if err != nil {
		return "", err
	}
	defer grouptest.Kill(n)
	return dump(t, n), nil
}

// Damage that looks like a member that has done less, with the reason. When one of
// them is detected some day, it moves to the test above.
func TestDamage_Undetectable(t *testing.T) {
	earlier, later, acknowledged := contentAtTwoTimes(t, false)
	_, cut, _ := contentAtTwoTimes(t, true)
	log := longest(cut, ".log")
	for _, c := range []struct {
		name, reason string
		left         content
	}{
		{"every file removed", "an empty directory is a new member; the others know that the old one is another", content{}},
		{"every file rolled back", "an old copy is consistent in itself; " +
			"other members know a later boot counter and refuse it, but a group of one has none", earlier},
		// No more of it than the last record: on a busy machine a local record may come shortly before.
		{"power loss, then the write-ahead log truncated", "the watermark is synced with each term, vote and local record, " +
			"and else each 64th time only; behind it a truncated log looks like one that was never longer", cut.with(log, cut[log][:len(cut[log])-8])},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := dumpOf(t, c.left.disk(t))
			if err != nil || got == acknowledged {
				t.Errorf("%v; it is listed as undetectable because %s", err, c.reason)
			}
		})
	}
	if _, err := dumpOf(t, later.disk(t)); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

// longest returns the longest file with an extension.
func longest(c content, ending string) (name string) {
	for n, bytes := range c {
		if strings.HasSuffix(n, ending) && (name == "" || len(bytes) > len(c[name])) {
			name = n
		}
	}
	return name
}
