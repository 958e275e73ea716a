package identity

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// useLog calls use with a log on the disk.
func useLog(t *testing.T, disk *vfs.MemFS, use func(*raftlog.Log)) {
	t.Helper()
	store, err := storage.Open(storage.Options{FS: disk, Inline: true, MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, err := raftlog.Open(store)
	if err != nil {
		t.Fatal(err)
	}
	use(log)
}

// Each start raises the boot counter before it can be sent, and the first generates the
// member's key: a power loss right after it undoes neither.
func TestIdentity_EachStartCounts(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var member uint64
	var key ed25519.PublicKey
	incarnations := make(map[wire.ID]bool)
	for boot := uint64(1); boot <= 5; boot++ {
		cut := disk
		useLog(t, disk, func(log *raftlog.Log) {
			id, err := Load(log, "group")
			if err != nil {
				t.Fatal(err)
			}
			cut = disk.CrashClone(vfs.CrashCloneCfg{})
			if id.Get().GetBoot() != boot {
				t.Errorf("boot counter %d, want %d", id.Get().GetBoot(), boot)
			}
			if member == 0 {
				member, key = id.Member, id.Public()
			}
			if !key.Equal(id.Public()) || wire.FingerprintOf(key) != member {
				t.Errorf("member %v has key %x, want %x", wire.MemberID(member), id.Public(), key)
			}
			if id.Member != member || id.Member == 0 {
				t.Errorf("member %v, want %v", wire.MemberID(id.Member), wire.MemberID(member))
			}
			incarnations[id.Incarnation] = true
		})
		disk = cut
	}
	if len(incarnations) != 5 {
		t.Errorf("5 starts had %d incarnations", len(incarnations))
	}
}

func TestIdentity_Refused(t *testing.T) {
	for _, test := range []struct {
		name   string
		record []byte
		want   error
		says   string
	}{
		{"of a newer version", encoded(&wire.Identity{Version: wire.IdentityVersion + 1, Member: 1, Group: "group"}), storage.ErrNewer, "version"},
		{"of the version without keys", encoded(&wire.Identity{Version: 1, Member: 1, Group: "group"}), nil, "members had no keys"},
		{"of another group", changedRecord("other", func(*wire.Identity) {}), nil, `"other"`},
		{"without a member", changedRecord("group", func(r *wire.Identity) { r.Member = 0 }), storage.ErrCorrupt, "names member"},
		{"of another member", changedRecord("group", func(r *wire.Identity) { r.Member++ }), storage.ErrCorrupt, "names member"},
		{"with another key", changedRecord("group", func(r *wire.Identity) { r.Key[0] ^= 1 }), storage.ErrCorrupt, "holds the key of"},
		{"without a key", changedRecord("group", func(r *wire.Identity) { r.Key = nil }), storage.ErrCorrupt, "key has 0 bytes"},
		{"removed", changedRecord("group", func(r *wire.Identity) { r.Removed = true }), ErrRemoved, "cannot be used"},
		{"damaged", []byte{0xff, 0xff}, storage.ErrCorrupt, "identity"},
		{"empty", []byte{}, storage.ErrCorrupt, "no version"},
	} {
		t.Run(test.name, func(t *testing.T) {
			useLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
				if err := log.SetLocal(Record, test.record); err != nil {
					t.Fatal(err)
				}
				_, err := Load(log, "group")
				if err == nil || !strings.Contains(err.Error(), test.says) || test.want != nil && !errors.Is(err, test.want) {
					t.Errorf("%v", err)
				}
				if kept, err := log.Local(Record); err != nil || string(kept) != string(test.record) {
					t.Errorf("the record is now %x, %v", kept, err)
				}
			})
		})
	}
}

func changedRecord(group string, change func(*wire.Identity)) []byte {
	r := NewRecord(group)
	change(r)
	return encoded(r)
}

func encoded(id *wire.Identity) []byte {
	b, err := proto.Marshal(id)
	if err != nil {
		panic(err)
	}
	return b
}

// A change that could not be saved does not hold in memory either.
func TestIdentity_ChangesOnDiskFirst(t *testing.T) {
	var id *Identity
	useLog(t, vfs.NewCrashableMem(), func(log *raftlog.Log) {
		var err error
		if id, err = Load(log, "group"); err != nil {
			t.Fatal(err)
		}
	})
	if err := id.Save(func(r *wire.Identity) { r.Boot = 99 }); err == nil {
		t.Fatal("saved in a closed store")
	}
	if id.Get().GetBoot() != 1 {
		t.Errorf("boot is %d", id.Get().GetBoot())
	}
}
