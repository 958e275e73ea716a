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

const watermarkFile = "/conclave/WATERMARK"

func encodeSlot(version byte, count uint64) []byte {
	record := encodeNumbers(count)
	record[0] = version
	return binary.BigEndian.AppendUint32(record, crc32.Checksum(record, castagnoli))
}

// Through any sequence of raises and restarts: after a power loss in the next
// write, which tears that slot, the watermark is at least the last synced count
// and at most the last written one.
func TestWatermark_TornWriteKeepsSyncedCount(t *testing.T) {
	disk := vfs.NewCrashableMem()
	w, found, err := openWatermark(disk, "WATERMARK")
	if err != nil || found {
		t.Fatalf("a new watermark: found %v, %v", found, err)
	}
	if err := w.create(disk, "/"); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var count, synced uint64
	for range 400 {
		switch rng.IntN(4) {
		case 0: // a crash of the process, which keeps the page cache
			w.file.Close()
			if w, found, err = openWatermark(disk, "WATERMARK"); err != nil || !found || w.count != count {
				t.Fatalf("after a restart: %d, found %v, %v; want %d", w.count, found, err, count)
			}
			synced = count
		case 1:
			count++
			synced = count
			err = w.raise(count, true)
		default:
			count++
			err = w.raise(count, false)
		}
		if err != nil {
			t.Fatal(err)
		}
		crashed := afterPowerLoss(disk)
		overwrite(t, crashed, "WATERMARK", w.slot*watermarkSlot+3, []byte{0xff, 0xff})
		after, found, err := openWatermark(crashed, "WATERMARK")
		if err != nil || !found || after.count < synced || after.count > count {
			t.Fatalf("after a power loss: %+v, %v, %v; want from %d to %d", after, found, err, synced, count)
		}
		after.file.Close()
	}
}

func TestWatermark_LostAcknowledgedEntriesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, disk *vfs.MemFS)
		want   error
	}{
		"watermark above the database": {func(t *testing.T, disk *vfs.MemFS) {
			overwrite(t, disk, watermarkFile, 0, encodeSlot(recordVersion, 1000))
		}, storage.ErrCorrupt},
		"watermark missing": {func(t *testing.T, disk *vfs.MemFS) {
			if err := disk.Remove(watermarkFile); err != nil {
				t.Fatal(err)
			}
		}, storage.ErrCorrupt},
		"watermark damaged": {func(t *testing.T, disk *vfs.MemFS) {
			overwrite(t, disk, watermarkFile, 0, make([]byte, 2*watermarkSlot))
		}, storage.ErrCorrupt},
		"watermark of a newer version": {func(t *testing.T, disk *vfs.MemFS) {
			overwrite(t, disk, watermarkFile, 0, encodeSlot(recordVersion+1, 3))
		}, storage.ErrNewer},
		"database missing": {func(t *testing.T, disk *vfs.MemFS) {
			for name := range readFiles(t, disk) {
				if name == "CONCLAVE" || name == "WATERMARK" {
					continue
				}
				if err := disk.Remove("/conclave/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}, storage.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			disk := acknowledgedLog(t)
			c.damage(t, disk)
			if _, _, err := openDisk(disk); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
