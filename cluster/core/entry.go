package core

import (
	"errors"
	"fmt"
)

// The data of an entry is a header for the cluster, followed by a batch for the machine.
// The header is one byte, the version.
const (
	entryVersion = 2
	entryHeader  = 1
)

var errEntry = errors.New("entry of an unknown version")

func appendEntryHeader(b []byte) []byte { return append(b, entryVersion) }

// parseEntry returns the batch.
func parseEntry(data []byte) ([]byte, error) {
	switch {
	case len(data) > 0 && data[0] > entryVersion:
		return nil, fmt.Errorf("%w: version %d", ErrUpgradeRequired, data[0])
	case len(data) <= entryHeader || data[0] != entryVersion:
		return nil, errEntry
	}
	return data[entryHeader:], nil
}
