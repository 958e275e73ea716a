package core

import (
	"bytes"
	"errors"
	"testing"
)

func TestEntry_Header(t *testing.T) {
	data := append(appendEntryHeader(nil), "batch"...)
	if got, err := parseEntry(data); err != nil || !bytes.Equal(got, []byte("batch")) {
		t.Errorf("%q, %v", got, err)
	}
	newer := append([]byte{entryVersion + 1}, data[1:]...)
	older := append([]byte{entryVersion - 1}, data[1:]...)
	for name, data := range map[string][]byte{
		"nothing": {}, "a newer version": newer, "an older version": older, "a header alone": data[:entryHeader],
	} {
		if _, err := parseEntry(data); !errors.Is(err, errEntry) && !errors.Is(err, ErrUpgradeRequired) {
			t.Errorf("%s: %v", name, err)
		} else if errors.Is(err, ErrUpgradeRequired) != (name == "a newer version") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
