package main

import (
	"fmt"
	"os"

	"github.com/conclave-go/conclave"
)

// journal is the file to which the workers of all processes append what they do.
// A nil *journal discards it.
type journal struct{ file *os.File }

func openJournal(path string) (*journal, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &journal{f}, err
}

// write appends one line. O_APPEND keeps the lines of several processes apart.
func (j *journal) write(what, worker string, f conclave.Fence) error {
	if j == nil {
		return nil
	}
	_, err := j.file.WriteString(fmt.Sprintf("%s %s %v\n", what, worker, f))
	return err
}

func (j *journal) close() {
	if j != nil {
		j.file.Close() // the file is unbuffered, so each write has reported its error
	}
}
