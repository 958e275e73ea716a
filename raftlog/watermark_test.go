package raftlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

func vfsMem() *vfs.MemFS { return vfs.NewMem() }

func vfsCrashable() *vfs.MemFS { return vfs.NewCrashableMem() }

// afterPowerCut is what is left when all that was not synced is lost.
func afterPowerCut(disk *vfs.MemFS) *vfs.MemFS { return disk.CrashClone(vfs.CrashCloneCfg{}) }

// Whatever the order of rises and restarts: when the power goes in the middle
// of the next write, which tears the slot it goes to, the watermark still says
// at least what was last synced, and never more than it was told.
func TestATornWatermark(t *testing.T) {
	disk := vfsCrashable()
	w, found, err := openWatermark(disk, "WATERMARK")
	if err != nil || found {
		t.Fatalf("a new watermark: found %v, %v", found, err)
	}
	if err := w.create(disk, "/"); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var count, durable uint64
	for range 400 {
		switch rng.IntN(4) {
		case 0:
			// The process dies and starts again; the file's pages live on.
			w.file.Close()
			if w, found, err = openWatermark(disk, "WATERMARK"); err != nil || !found || w.count != count {
				t.Fatalf("restarted with %d, found %v, %v; want %d", w.count, found, err, count)
			}
			durable = count
		case 1:
			count++
			durable = count
			err = w.rise(count, true)
		default:
			count++
			err = w.rise(count, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		left := afterPowerCut(disk)
		tear(t, left, w.slot)
		after, found, err := openWatermark(left, "WATERMARK")
		if err != nil || !found || after.count < durable || after.count > count {
			t.Fatalf("after a power cut: %+v, %v, %v; want from %d to %d", after, found, err, durable, count)
		}
		after.file.Close()
	}
}

func tear(t *testing.T, disk vfs.FS, slot int64) {
	t.Helper()
	overwrite(t, disk, "WATERMARK", slot*watermarkSlot+3, []byte{0xff, 0xff})
}

// overwrite damages a file in place.
func overwrite(t *testing.T, disk vfs.FS, path string, at int64, with []byte) {
	t.Helper()
	file, err := disk.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(with, at); err != nil {
		t.Fatal(err)
	}
}

// acknowledged makes a log with a few acknowledged writes and closes it.
func acknowledged(t *testing.T) *vfs.MemFS {
	t.Helper()
	disk := vfsMem()
	store, log := openLog(t, storage.Options{FS: disk})
	if err := log.Bootstrap(members(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	for i := uint64(2); i < 6; i++ {
		mustCarryOut(t, log, Append{Entries: entries(i, i, 1)})
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return disk
}

const watermarkFile = "/conclave/WATERMARK"

func TestAMemberThatForgotDoesNotOpen(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, disk *vfs.MemFS)
		want   error
	}{
		"more acknowledged than remembered": {func(t *testing.T, disk *vfs.MemFS) {
			overwrite(t, disk, watermarkFile, 0, slotOf(recordVersion, 1000))
		}, storage.ErrCorrupt},
		"watermark gone": {func(t *testing.T, disk *vfs.MemFS) {
			if err := disk.Remove(watermarkFile); err != nil {
				t.Fatal(err)
			}
		}, storage.ErrCorrupt},
		"watermark damaged": {func(t *testing.T, disk *vfs.MemFS) {
			overwrite(t, disk, watermarkFile, 0, make([]byte, 2*watermarkSlot))
		}, storage.ErrCorrupt},
		"newer watermark": {func(t *testing.T, disk *vfs.MemFS) {
			overwrite(t, disk, watermarkFile, 0, slotOf(recordVersion+1, 3))
		}, storage.ErrNewer},
		"database gone": {func(t *testing.T, disk *vfs.MemFS) {
			names, err := disk.List("/conclave")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if name != "CONCLAVE" && name != "WATERMARK" {
					if err := disk.Remove("/conclave/" + name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			disk := acknowledged(t)
			c.damage(t, disk)
			_, _, err := reopen(disk)
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func slotOf(version byte, count uint64) []byte {
	record := encodeNumbers(count)
	record[0] = version
	return binary.BigEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
}
