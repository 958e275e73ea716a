package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// withLog opens a log on the disk for as long as use takes.
func withLog(t *testing.T, disk *vfs.MemFS, use func(*raftlog.Log)) {
	t.Helper()
	store, err := storage.Open(storage.Options{FS: disk, Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store, groupNumber)
	if err != nil {
		t.Fatal(err)
	}
	use(log)
}

// Each start counts, before anybody can hear of it: a power cut right behind it
// does not take it back.
func TestIdentityCountsEachStart(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var member uint64
	incarnations := make(map[wire.ID]bool)
	for boot := uint64(1); boot <= 5; boot++ {
		cut := disk
		withLog(t, disk, func(log *raftlog.Log) {
			id, err := loadIdentity(log, "group")
			if err != nil {
				t.Fatal(err)
			}
			cut = disk.CrashClone(vfs.CrashCloneCfg{})
			if id.get().GetBoot() != boot {
				t.Errorf("boot %d, want %d", id.get().GetBoot(), boot)
			}
			if member == 0 {
				member = id.member
			}
			if id.member != member || id.member == 0 {
				t.Errorf("member %x was %x before", id.member, member)
			}
			incarnations[id.incarnation] = true
		})
		disk = cut
	}
	if len(incarnations) != 5 {
		t.Errorf("5 starts had %d incarnations", len(incarnations))
	}
}

func TestIdentityIsRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		record []byte
		want   error
		says   string
	}{
		{"of a newer version", encodedIdentity(&wire.Identity{Version: wire.IdentityVersion + 1, Member: 1, Group: "group"}), storage.ErrNewer, "version"},
		{"of another group", encodedIdentity(&wire.Identity{Version: 1, Member: 1, Group: "other"}), nil, `"other"`},
		{"of nobody", encodedIdentity(&wire.Identity{Version: 1, Group: "group"}), storage.ErrCorrupt, "names no member"},
		{"damaged", []byte{0xff, 0xff}, storage.ErrCorrupt, "identity"},
		{"empty", []byte{}, nil, "group"},
	} {
		t.Run(test.name, func(t *testing.T) {
			withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
				if err := log.SetLocal(identityRecord, test.record); err != nil {
					t.Fatal(err)
				}
				_, err := loadIdentity(log, "group")
				if err == nil || !strings.Contains(err.Error(), test.says) || test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("%v", err)
				}
				if kept, err := log.Local(identityRecord); err != nil || string(kept) != string(test.record) {
					t.Errorf("the record is now %x, %v", kept, err)
				}
			})
		})
	}
}

func encodedIdentity(id *wire.Identity) []byte {
	b, err := proto.Marshal(id)
	if err != nil {
		panic(err)
	}
	return b
}

// What could not be saved does not hold in memory either.
func TestIdentityChangesOnDiskFirst(t *testing.T) {
	var id *identity
	withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
		var err error
		if id, err = loadIdentity(log, "group"); err != nil {
			t.Fatal(err)
		}
	})
	if err := id.save(func(r *wire.Identity) { r.Boot = 99 }); err == nil {
		t.Fatal("saved in a closed store")
	}
	if id.get().GetBoot() != 1 {
		t.Errorf("boot is %d", id.get().GetBoot())
	}
}

// The latest start of a member says where it is, whatever order the news come in.
func TestBookBelievesTheLatestStart(t *testing.T) {
	disk := vfs.NewCrashableMem()
	withLog(t, disk, func(log *raftlog.Log) {
		b, err := loadBook(log)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			start uint64
			said  string
			news  bool
			addr  string
		}{
			{3, "a", true, "a"},
			{3, "a", false, "a"},
			{2, "old", false, "a"},
			{3, "b", true, "b"},
			{4, "b", false, "b"},
			{3, "a", false, "b"},
			{5, "c", true, "c"},
		} {
			if news := b.heard(1, step.start, "", step.said); news != step.news {
				t.Errorf("%+v is news: %v", step, news)
			}
			if got := b.all()[0]; got.GetAdvertise() != step.addr {
				t.Errorf("after %+v: %v", step, got)
			}
		}
		b.raised(1, 9)
		b.raised(1, 8) // late
		if b.heard(1, 8, "", "late") {
			t.Error("believes an earlier start")
		}
		// Who has shown that it is the latest start is believed, whatever gossip claims.
		if b.heard(2, 1<<60, "", "claimed"); !b.met(2, "", "shown") {
			t.Error("does not believe the member itself")
		}
	})
	withLog(t, disk, func(log *raftlog.Log) {
		b, err := loadBook(log)
		if err != nil {
			t.Fatal(err)
		}
		all := b.all()
		if len(all) != 2 || all[0].GetAdvertise() != "c" || all[1].GetAdvertise() != "shown" || b.boots()[1] != 9 || b.boots()[2] != 0 {
			t.Errorf("after a restart: %v", all)
		}
	})
}

func TestBookRefusesDamage(t *testing.T) {
	withLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
		if err := log.SetLocal(peerRecord+"1", []byte{0xff}); err != nil {
			t.Fatal(err)
		}
		if _, err := loadBook(log); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%v", err)
		}
	})
}
