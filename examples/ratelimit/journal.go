package main

import (
	"fmt"
	"os"

	"github.com/conclave-go/conclave"
)

// journal is the file in which all processes write what their workers do. A nil
// *journal writes nothing.
type journal struct{ file *os.File }

func openJournal(path string) (*journal, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &journal{f}, err
}

// write appends one line. The system puts lines that are appended by several
// processes one after the other.
func (j *journal) write(what, who string, f conclave.Fence) error {
	if j == nil {
		return nil
	}
	_, err := j.file.WriteString(fmt.Sprintf("%s %s %v\n", what, who, f))
	return err
}

func (j *journal) close() {
	if j != nil {
		j.file.Close() // nothing is buffered here
	}
}
