package crash

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/storage"
)

// content is a data directory: what is in each file.
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

// with is the directory with another file in the place of one; nil: with none.
func (c content) with(name string, bytes []byte) content {
	d := maps.Clone(c)
	if d[name] = bytes; bytes == nil {
		delete(d, name)
	}
	return d
}

// earlierAndLater are one member's directory at two moments at which its process
// might have died, or the power gone, and what was acknowledged at the second.
func earlierAndLater(t *testing.T, powerCut bool) (earlier, later content, acknowledged string) {
	t.Helper()
	b := newBlackout(100)
	if powerCut {
		b.kept = 0
	}
	states := lives(t, b)
	moment := func(deeds int) content { // the first, when nothing of the next deed is on disk
		i := slices.IndexFunc(b.wrecks, func(w wreck) bool { return w.acknowledged == int64(deeds) })
		return contentOf(t, b.wrecks[i].disk)
	}
	last := len(states) - 2 // before the session is closed, and all that it holds given back
	return moment(last - 2), moment(last), states[last]
}

type damage struct {
	how   string
	bytes []byte // nil: the file is gone
}

// damages are what may happen to a file: each at many places.
func damages(bytes, before []byte) []damage {
	all := []damage{{"gone", nil}, {"emptied", []byte{}}, {"lengthened", append(slices.Clone(bytes), "what others wrote"...)}}
	if before != nil && !slices.Equal(before, bytes) {
		all = append(all, damage{"as it was earlier", before})
	}
	const places = 16
	for i := range places {
		at := len(bytes) * i / places
		if at == len(bytes) || i > 0 && at == len(bytes)*(i-1)/places {
			continue // a short file has fewer
		}
		flipped := slices.Clone(bytes)
		flipped[at] ^= 1 << (i % 8)
		all = append(all,
			damage{fmt.Sprintf("bit flipped at %d of %d", at, len(bytes)), flipped},
			damage{fmt.Sprintf("cut off at %d of %d", at, len(bytes)), bytes[:at:at]})
		for _, block := range []int{16, 512, 4096} {
			from := at / block * block
			if i > 0 && len(bytes)*(i-1)/places/block*block == from {
				continue // has been
			}
			zeroed := slices.Clone(bytes)
			clear(zeroed[from:min(from+block, len(zeroed))])
			all = append(all, damage{fmt.Sprintf("zeroed from %d to %d of %d", from, from+block, len(bytes)), zeroed})
		}
	}
	return all
}

// Each file of a member's directory is damaged in turn: bits flipped, blocks
// zeroed, cut off, emptied, gone, or as it was earlier. The member refuses to
// start, and says that its data is damaged, also at the next attempt; or it has
// all that it had acknowledged, to the last index. It never starts with less.
// What that is not true of is in TestDamageThatCannotBeNoticed.
func TestDamageToEachFile(t *testing.T) {
	earlier, later, acknowledged := earlierAndLater(t, false)
	for name, bytes := range later {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused, all := 0, 0
			for _, d := range damages(bytes, earlier[name]) {
				disk := later.with(name, d.bytes).disk(t)
				for attempt := range 2 {
					got, err := heldOn(t, disk)
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

// heldOn starts a member on a disk and tells what it holds.
func heldOn(t *testing.T, disk vfs.FS) (string, error) {
	n, err := startOn(grouptest.Within(t, 20*time.Second), disk)
	if err != nil {
		return "", err
	}
	defer grouptest.Kill(n)
	return holdings(t, n), nil
}

// There is damage that looks like a member that has done less. Each is here with
// its reason, and shows that it is so: if one of them is refused one day, it
// moves to the test above.
func TestDamageThatCannotBeNoticed(t *testing.T) {
	earlier, later, acknowledged := earlierAndLater(t, false)
	_, cut, _ := earlierAndLater(t, true)
	log := longest(cut, ".log")
	for _, c := range []struct {
		name, reason string
		left         content
	}{
		{"every file gone", "an empty directory is a new member; the others know that the old one is somebody else", content{}},
		{"every file as it was earlier", "a copy from the past is in order in itself; " +
			"the others remember a later boot counter and refuse it, but a group of one has no others", earlier},
		{"a power cut, and then the end of the write-ahead log gone", "the watermark is synced with each term, vote and local record, " +
			"and else each 64th time only; behind it a shorter log and one that was never longer are the same", cut.with(log, cut[log][:len(cut[log])/2])},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := heldOn(t, c.left.disk(t))
			if err != nil || got == acknowledged {
				t.Errorf("%v; it is on the list because %s", err, c.reason)
			}
		})
	}
	if _, err := heldOn(t, later.disk(t)); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

// longest is the file with most in it, of those with the ending.
func longest(c content, ending string) (name string) {
	for n, bytes := range c {
		if strings.HasSuffix(n, ending) && (name == "" || len(bytes) > len(c[name])) {
			name = n
		}
	}
	return name
}
