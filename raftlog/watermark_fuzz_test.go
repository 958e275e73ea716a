package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/conclave-go/conclave/storage"
)

// FuzzWatermark opens arbitrary bytes as a watermark. Open returns a count that
// the bytes contain, none, or an error; and a raised count is read back.
func FuzzWatermark(f *testing.F) {
	two := append(encodeSlot(recordVersion, 7), make([]byte, watermarkSlot-watermarkRecord)...)
	two = append(two, encodeSlot(recordVersion, 8)...)
	f.Add(two)
	f.Add(two[:watermarkSlot])
	f.Add(two[watermarkSlot:])
	f.Add(encodeSlot(recordVersion, 1<<64-1))
	f.Add(encodeSlot(recordVersion+1, 9))
	f.Add(encodeSlot(0, 9))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		disk := vfs.NewMem()
		file, err := disk.Create("WATERMARK", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Write(bytes.Clone(content))
		file.Close()
		w, found, err := openWatermark(disk, "WATERMARK")
		if err != nil {
			if !errors.Is(err, storage.ErrNewer) && !errors.Is(err, storage.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		defer w.file.Close()
		if found && !bytes.Contains(content, binary.BigEndian.AppendUint64([]byte{recordVersion}, w.count)) {
			t.Fatalf("count %d was never written", w.count)
		}
		if w.count == 1<<64-1 {
			return
		}
		for i := range 3 {
			count := w.count + 1
			if err := w.raise(count, i == 1); err != nil {
				t.Fatal(err)
			}
			reopened, found, err := openWatermark(disk, "WATERMARK")
			if err != nil || !found || reopened.count != count {
				t.Fatalf("raised to %d, read %+v, %v", count, reopened, err)
			}
			reopened.file.Close()
		}
	})
}
